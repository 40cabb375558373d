"""What coordinators ask each other: hints about a leader's health, never authority."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerBeat:
    """One message of a watched coordinator."""

    epoch: int
    leading: bool
    beat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """What a coordinator says of itself. `ticking`: a tick finished within leader_stale_seconds."""

    incarnation: str
    role: str
    epoch: int
    ticking: bool


class Peers(Protocol):
    """Calls to another coordinator; `address` is host:port."""

    def watch(self, address: str) -> AsyncIterator[PeerBeat]:
        """A message at least every 0.2 s while that coordinator leads; ends, or raises TobanError, when it does not any more."""
        ...

    async def status(self, address: str) -> PeerStatus:
        """Raises TobanError when it does not answer within its bound."""
        ...

    async def refused(self, address: str) -> bool:
        """True when a new connection is refused: no process listens there. A silent address is not refused."""
        ...
