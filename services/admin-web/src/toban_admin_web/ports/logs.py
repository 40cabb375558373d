"""What the site reads from log-archivers. Every call returns within the seconds given, or raises TobanError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toban_admin_web.decide.log_lines import FoundLines, LogPart, LogPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTicket:
    """A coordinator's permission to read the output of some runs, for a minute."""

    body: bytes
    signature: bytes
    certificate: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedTicket:
    """The answer of JobReader.GetReadTicket."""

    ticket: ReadTicket


class LogSource(Protocol):
    """LogReader. Every call needs the ticket of its run."""

    def tail(self, run_id: int, ticket: ReadTicket, *, lines: int, seconds: float) -> Sequence[LogPart]:
        """The last stored lines."""

    def follow(
        self, run_id: int, ticket: ReadTicket, *, token: int, from_seq: int, seconds: float
    ) -> Iterator[LogPart]:
        """New lines of one attempt from a sequence number on, or of all attempts (token 0); ends after `seconds`."""

    def whole(self, run_id: int, ticket: ReadTicket, *, seconds: float) -> Iterator[LogPart]:
        """All stored lines."""

    def select(
        self, run_id: int, ticket: ReadTicket, fields: Mapping[str, Any], *, seconds: float
    ) -> Iterator[LogPart]:
        """The stored lines that `fields` of ReadLogRequest select; `streams` by name. Raises INVALID_ARGUMENT."""

    def search(
        self,
        run_ids: Sequence[int],
        ticket: ReadTicket,
        fields: Mapping[str, Any],
        *,
        after: LogPlace | None,
        seconds: float,
    ) -> FoundLines:
        """Lines of several runs, as far as one call goes; `fields` of SearchLogRequest, `streams` by name. Raises INVALID_ARGUMENT."""
