"""Pauses of schedules and disables of jobs that end at a time: which times a person may give, and which ends have come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from toban_coordinator.decide.schedules.skipped_slots import TICK
from toban_domain.epoch import Term
from toban_domain.errors import ErrorCode, TobanError

LONGEST_DAYS = 366
# The actor of what the leader does at the end of a pause.
LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseEnd:
    """A schedule that is paused, or a job that is disabled, until a time."""

    kind: Literal["job", "schedule"]
    name: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPause:
    """What the leader of `term` saw: the pause ends at `until`. Slots from then on get their runs, however late the leader comes."""

    until: datetime
    term: Term

    @property
    def last_slot(self) -> datetime:
        """Slots up to here are within the pause: one at `until` is not."""
        return self.until - TICK

    @property
    def reason(self) -> str:
        """For the audit log."""
        return f"paused until {shown(self.until)}"


def check_until(until: datetime | None, now: datetime) -> None:
    """Raises INVALID_ARGUMENT for a time that is past, or so far ahead that it is a slip of the pen."""
    if until is None:
        return
    if until <= now:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"until is {shown(until)}, which is past: it is {shown(now)}; name a later time"
        )
    if until - now > timedelta(days=LONGEST_DAYS):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"until is {shown(until)}, more than {LONGEST_DAYS} days ahead; name an earlier time, or none to pause without an end",
        )


def shown(moment: datetime) -> str:
    """A moment in UTC, to the second."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def split_due(ends: Sequence[PauseEnd], now: datetime) -> tuple[Sequence[PauseEnd], float | None]:
    """Of the earliest ends, in their order, those that have come, and in how many seconds the next one does (None = there is none)."""
    due = [one for one in ends if one.until <= now]
    later = ends[len(due) :]
    return due, (later[0].until - now).total_seconds() if later else None
