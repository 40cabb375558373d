"""The outbox of webhooks at the coordinators, and what sends a request to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A POST that is ready to be sent. It is the caller's alone while its `lease` holds."""

    delivery: int
    lease: str
    webhook: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What is due now, and when to ask again, seconds."""

    requests: Sequence[Outgoing]
    next_poll_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PostResult:
    """How a try ended: status 0 = no response; `error` is empty for 200 to 299. `outcome` (of metrics): accepted, refused, unreachable, denied.
    `permanent`: the same try would fail again."""

    outcome: str
    status: int = 0
    error: str = ""
    retry_after: int = 0
    permanent: bool = False


class Outbox(Protocol):
    """Deliveries of the cluster. Both raise TobanError."""

    def claim(self, limit: int) -> Batch:
        """At most `limit` of what is due."""

    def confirm(self, one: Outgoing, result: PostResult) -> bool:
        """How its try ended; False when the lease had ended before."""


class Poster(Protocol):
    """Sends requests to targets."""

    def post(self, one: Outgoing) -> PostResult:
        """One try, within a fixed time. Raises nothing."""
