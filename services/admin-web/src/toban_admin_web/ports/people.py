"""What the site asks coordinators about people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Credential:
    """The session of a request, which goes with each call for it, and where its person is."""

    secret: str = field(repr=False)
    address: str


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person. `role` is the highest of any rule of theirs; "" without one."""

    user: str
    role: str


class People(Protocol):
    """Accounts. Every call raises TobanError UNAVAILABLE or DEADLINE_EXCEEDED when no coordinator answers."""

    def has_administrator(self) -> bool:
        """Whether there is an administrator who can sign in."""

    def person(self, credential: Credential) -> SignedIn | None:
        """Whose session it is; None when it is good no more."""

    def sign_in(self, user: str, password: str, *, address: str, user_agent: str) -> str:
        """The secret of a new session. Raises UNAUTHENTICATED, and RESOURCE_EXHAUSTED with `retry_after_seconds`."""

    def sign_out(self, secret: str, *, everywhere: bool) -> None:
        """Ends this session, or all of its person."""

    def make_first(self, link: str, *, user: str, password: str, address: str) -> None:
        """The first administrator. Raises UNAUTHENTICATED for a link that is not good, INVALID_ARGUMENT, ALREADY_EXISTS."""
