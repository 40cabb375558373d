"""How many slots lie in a span of time, without visiting each of them: a schedule may have been paused for a year."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from toban_schedule.rule import TICK, At, Every, Rule

_DAY = timedelta(days=1)
_FIRST_LOOK = timedelta(seconds=64)


@dataclass(frozen=True, slots=True)
class SlotCount:
    """Consecutive slots: the first, the last, how many."""

    first: datetime
    last: datetime
    slots: int


class DayCount(NamedTuple):
    """Slots of a day, and how many slots or minutes were visited to count them: none on a day that is counted as a whole one."""

    slots: int
    visited: int


def count_slots(rule: Rule, after: datetime, until: datetime) -> SlotCount | None:
    """The slots in (after, until]; None when there are none. Days without a change of the clocks are counted, not iterated."""
    after, until = after.astimezone(UTC), until.astimezone(UTC)
    if rule.end is not None:
        until = min(until, rule.end - TICK)
    first = rule.next_slot(after)
    if first is None or first > until:
        return None
    if isinstance(rule.source, Every):
        steps = (until - first) // rule.source.period
        return SlotCount(first, first + steps * rule.source.period, steps + 1)
    return SlotCount(first, _last(rule.source, first, until), _count(rule.source, first, until))


def count_of_day(rule: Rule, day: date, after: datetime) -> DayCount:
    """The slots of a day, those after `after`: of the local day, or of the day of UTC for an interval.

    Where a rule has several slots a minute, a minute that is not whole may count as a whole one.
    """
    at = rule.source
    if isinstance(at, Every):
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        found = count_slots(rule, max(after, begin - TICK), begin + _DAY - TICK)
        return DayCount(found.slots if found else 0, 0)
    zone = at.clock.zone
    begin, end = _midnight(zone, day), _midnight(zone, day + _DAY)
    first = max(after, begin - TICK, (rule.start or begin) - TICK)
    last = min(end, rule.end or end) - TICK
    if (first, last) == (begin - TICK, end - TICK) and _calm(zone, day):
        return DayCount(at.cron.a_day if at.cron.day_matches(day) else 0, 0)
    cron, factor = at.cron.by_minute()
    visited = len(slots_between(replace(at, cron=cron), first, last))
    return DayCount(visited * factor, visited)


def _last(at: At, first: datetime, until: datetime) -> datetime:
    """The last slot up to `until`: looks back further and further, at the latest to `first`, which is one."""
    look = _FIRST_LOOK
    while True:
        after = max(until - look, first - TICK)
        found = slots_between(at, after, until)
        if found:
            return max(found)
        look *= 2


def _count(at: At, first: datetime, until: datetime) -> int:
    """Slots in [first, until]."""
    begin, total = first - TICK, 0
    day = first.astimezone(at.clock.zone).date() + _DAY
    while (following := _midnight(at.clock.zone, day + _DAY)) <= until:
        midnight = _midnight(at.clock.zone, day)
        if _calm(at.clock.zone, day):
            total += len(slots_between(at, begin, midnight - TICK))
            total += at.cron.a_day if at.cron.day_matches(day) else 0
            begin = following - TICK
        day += _DAY
    return total + len(slots_between(at, begin, until))


def slots_between(at: At, after: datetime, until: datetime) -> set[datetime]:
    """The slots in (after, until]: one pass over the local times."""
    found: set[datetime] = set()
    for wall in at.cron.walls(at.clock.wall_before(after)) if after < until else ():
        images = at.clock.images(wall)
        if images.floor > until:
            break
        found.update(instant for instant in images.instants if after < instant <= until)
    return found


# A month of many schedules asks for the same few days of the same few zones.
@lru_cache(maxsize=4096)
def _midnight(zone: tzinfo, day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def clocks_change(zone: tzinfo, day: date) -> bool:
    """Whether the day is not as long as others."""
    return _midnight(zone, day + _DAY) - _midnight(zone, day) != _DAY


def _calm(zone: tzinfo, day: date) -> bool:
    """True when the clocks change neither on this day nor on those beside it, so that each local time is one slot."""
    instants = [_midnight(zone, day + days * _DAY) for days in (-1, 0, 1, 2)]
    return all(right - left == _DAY for left, right in itertools.pairwise(instants))
