"""The next slots of a schedule for people: local time, which rule of DST acted, and why nothing comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime

from toban_coordinator.decide.schedules.fire import compiled
from toban_coordinator.decide.schedules.pauses import shown
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.schedule import ScheduleSpec
from toban_schedule import ScheduleError
from toban_schedule.rule import TICK, YEARS
from toban_store.tx import Row

DEFAULT_COUNT = 5
MAX_COUNT = 1000
# Slots that Apply tells of a schedule that it has written.
NEXT_SHOWN = 3


def checked_count(count: int) -> int:
    """How many slots; 0 = DEFAULT_COUNT. Raises INVALID_ARGUMENT."""
    if not 0 <= count <= MAX_COUNT:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"count is {count}; use 1 to {MAX_COUNT}")
    return count or DEFAULT_COUNT


def check_after(after: datetime | None) -> None:
    """Raises INVALID_ARGUMENT for a year that schedules do not have."""
    if after is not None and after.year not in YEARS:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"after is in the year {after.year}; use {YEARS.start} to {YEARS.stop - 1}"
        )


def note_of(
    *,
    status: str,
    reason: str,
    actor: str,
    until: datetime | None,
    spec: ScheduleSpec,
    job_enabled: bool,
    job_disabled_why: str = "",
    ended: bool,
    after: datetime | None = None,
) -> str:
    """Why slots do not become runs; "" when they do. `ended`: there is no slot later than now, or than `after` when it is given."""
    if ended and after is not None:
        end = f", since its end is {spec.rule.end}" if spec.rule.end else ""
        return f"no slot comes after {after:%Y-%m-%dT%H:%M:%SZ}{end}"
    by = f" by {actor}" if actor else ""
    why = f": {reason}" if reason else ""
    if status == "paused":
        if until:
            return f"paused until {shown(until)}{by}{why}; its slots pass without runs until then, or `toban schedule resume {spec.name}`"
        return f"paused{by}{why}; its slots pass without runs until `toban schedule resume {spec.name}`"
    if status == "failed":
        return f"failed{why}; remedy the cause, then `toban schedule resume {spec.name}`"
    if not spec.enabled:
        return "disabled: it has no slots until `enabled: true` is applied"
    if ended:
        return (
            f"ended: no slot comes before its end {spec.rule.end}" if spec.rule.end else "ended: no slot comes any more"
        )
    if not job_enabled:
        return f"job {spec.job} is disabled{job_disabled_why}: its slots pass without runs"
    return ""


def stored_spec(row: Row) -> ScheduleSpec:
    """The definition in a row of `read_models.schedules_page`. Raises SCHEDULE_INVALID when this version cannot read it."""
    try:
        return ScheduleSpec.from_json(json.loads(row["spec"]))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise TobanError(
            ErrorCode.SCHEDULE_INVALID,
            f"schedule {row['name']!r}: it cannot be read as stored ({type(error).__name__}: {error}); apply it again",
        ) from None


async def with_next_after_pause(schedules: Sequence[Row]) -> Sequence[Row]:
    """Rows of `read_models.schedules_page`: of a pause with an end the next run is the first slot from then on. None when the rule cannot be read."""
    if paused := [row for row in schedules if row["resumes_at"] is not None]:
        # A rare slot takes a millisecond to find, and a page has up to 500 schedules.
        await asyncio.to_thread(_add_next_after_pause, paused)
    return schedules


def _add_next_after_pause(paused: Sequence[Row]) -> None:
    for row in paused:
        try:
            rule = compiled(stored_spec(row))
        except (TobanError, ScheduleError):
            continue
        row["next_run_at"] = rule.next_slot(row["resumes_at"] - TICK)
