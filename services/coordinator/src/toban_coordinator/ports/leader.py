"""What the rest of a coordinator may know of leadership: a view of the row, and PostgreSQL's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """Who leads, as this coordinator last read it; at most a poll old while PostgreSQL answers.

    `leading`: this very process leads `epoch`. `role` is leader, subleader or standby. `last_tick_at` is when the leader last finished a tick,
    `last_fire_at` the newest slot that any leader has fired.
    """

    epoch: int = 0
    holder: str = ""
    worker_id: int = 0
    address: str = ""
    node_id: str = ""
    beat: int = 0
    last_tick_at: datetime | None = None
    last_fire_at: datetime | None = None
    role: str = "standby"
    leading: bool = False
    settled: bool = True


class LeaderSource(Protocol):
    """Gives the view without waiting."""

    def view(self) -> LeaderView:
        """The newest view."""
        ...

    async def changed(self) -> None:
        """Wait until this process has begun or ended to lead."""
        ...


class ServerClock(Protocol):
    """PostgreSQL's clock, interpolated: the time of schedules (docs/fencing.md 3.12)."""

    def now(self) -> datetime:
        """PostgreSQL's time in UTC. Raises TobanError UNAVAILABLE before the first answer."""
        ...

    @property
    def skew_seconds(self) -> float:
        """This machine's wall clock minus PostgreSQL's, seconds; 0 before the first answer."""
        ...
