"""The rule of a schedule, compiled: which instants are its slots.

Intervals count from the Unix epoch and know neither zones nor DST. The other rules are cron expressions over local time. Where an expression
names hours, a local time that a change of the clocks leaves out or repeats is handled by the schedule's policy; one that matches every
hour follows the clock: it fires at each matching local time that exists, each time it exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from toban_schedule.cron import Cron, never_fires, parse_cron
from toban_schedule.localtime import LocalClock
from toban_schedule.spec import FOLDS, GAPS, RuleLike, ScheduleError
from toban_schedule.zones import load_zone

_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def cron_of_day(text: str) -> str:
    """The cron expression of "HH:MM" or "HH:MM:SS"."""
    return _clock("daily_at", text) + " * * *"


def cron_of_week(text: str) -> str:
    """The cron expression of "mon,thu HH:MM"; a range may run over the end of a week: "sat-mon"."""
    days, _, clock = text.strip().rpartition(" ")
    numbers = sorted({number for part in days.split(",") for number in _weekdays(text, part)})
    return f"{_clock('weekly_at', clock)} * * {','.join(map(str, numbers))}"


def _weekdays(text: str, part: str) -> list[int]:
    first, _, last = part.partition("-")
    begin = _weekday(text, first)
    count = (_weekday(text, last) - begin) % 7 if last else 0
    return [(begin + step) % 7 for step in range(count + 1)]


def _weekday(text: str, day: str) -> int:
    name = day.strip().lower()
    found = [number for number, full in enumerate(_DAYS) if name in (full, full[:3])]
    if not found:
        raise ScheduleError(
            "weekly_at", f"{day.strip()!r} is not a weekday in {text!r}", 'write "mon,thu 03:00" or "mon-fri 03:00"'
        )
    return found[0]


YEARS = range(1970, 2200)
"""In which schedules begin and end, and slots may be asked for; far beyond them dates overflow."""


def parse_bound(field: str, text: str) -> datetime | None:
    """The instant (UTC) of an ISO time with an offset; None for ""."""
    if not text:
        return None
    try:
        bound = datetime.fromisoformat(text)
    except ValueError:
        raise ScheduleError(field, f"{text!r} is not an ISO time", "write 2026-12-31T18:00:00Z") from None
    if bound.tzinfo is None:
        raise ScheduleError(field, f"{text!r} has no offset", "add Z for UTC, or +01:00")
    if bound.year not in YEARS:
        years = f"{YEARS.start} to {YEARS.stop - 1}"
        raise ScheduleError(field, f"{text!r} is in the year {bound.year}", f"use {years}, or leave {field} out")
    return bound.astimezone(UTC)


def _clock(field: str, text: str) -> str:
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise ScheduleError(
            field, f"{text!r} is not a time of day", 'write "HH:MM" or "HH:MM:SS" in quotes, such as "03:00"'
        )
    hour, minute, second = found[1], found[2], found[3]
    return f"{int(second or 0)} {int(minute)} {int(hour)}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The smallest step of time: just before an instant.
TICK = timedelta(microseconds=1)
# An expression may only match local times that a policy drops; nothing is looked for beyond this.
_HORIZON = timedelta(days=50 * 366)
_KEYS = ("interval_seconds", "every_n_minutes", "hourly_at_minute", "daily_at", "weekly_at", "cron")


@dataclass(frozen=True, slots=True)
class Every:
    """Multiples of a period since the Unix epoch."""

    period: timedelta

    def next(self, after: datetime) -> datetime | None:
        """The first slot strictly after `after`."""
        return _EPOCH + ((after - _EPOCH) // self.period + 1) * self.period


@dataclass(frozen=True, slots=True)
class At:
    """A cron expression on a local clock."""

    cron: Cron
    clock: LocalClock

    def next(self, after: datetime) -> datetime | None:
        """The first slot strictly after `after` (UTC); None when there is none within 50 years."""
        return _next_match(self, after)


# Schedules that are due together mostly have equal expressions, so thousands of them share one search.
@lru_cache(maxsize=4096)
def _next_match(at: At, after: datetime) -> datetime | None:
    best: datetime | None = None
    for wall in at.cron.walls(at.clock.wall_before(after)):
        images = at.clock.images(wall)
        if (best is not None and images.floor > best) or images.floor > after + _HORIZON:
            break
        later = [instant for instant in images.instants if instant > after]
        best = min([*later, best] if best is not None else later, default=None)
        if images.plain and later:
            break
    return best


@dataclass(frozen=True, slots=True)
class Rule:
    """Slots of a schedule: those of `source` from `start` on and before `end`."""

    source: Every | At
    start: datetime | None = None
    end: datetime | None = None

    @classmethod
    def of(cls, spec: RuleLike) -> Rule:
        """Compiles a rule; raises ScheduleError for the first field that is wrong."""
        start, end = parse_bound("start", spec.start), parse_bound("end", spec.end)
        if start is not None and end is not None and start >= end:
            raise ScheduleError("end", f"{spec.end} is not after start {spec.start}", "give a later time")
        rule = cls(_source(spec), start, end)
        if isinstance(rule.source, At) and rule.source.next(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise never_fires(rule.source.cron.expression)
        if start is not None and end is not None and rule.next_slot(start - TICK) is None:
            raise ScheduleError("end", f"no slot lies between {spec.start} and {spec.end}", "give a later end")
        return rule

    def next_slot(self, after: datetime) -> datetime | None:
        """The first slot (UTC) strictly after `after` (aware); None when there is none."""
        after = after.astimezone(UTC)
        if self.start is not None and after < self.start:
            after = self.start - TICK
        slot = self.source.next(after)
        return None if slot is None or (self.end is not None and slot >= self.end) else slot

    def slots_after(self, after: datetime) -> Iterator[datetime]:
        """All slots strictly after `after`, in order."""
        slot = self.next_slot(after)
        while slot is not None:
            yield slot
            slot = self.next_slot(slot)


def next_slot(rule: Rule, after: datetime) -> datetime | None:
    """The first slot (UTC) strictly after `after` (aware); None when there is none."""
    return rule.next_slot(after)


def slots(rule: Rule, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The first `limit` slots in (after, until]."""
    found: list[datetime] = []
    for slot in rule.slots_after(after):
        if slot > until or len(found) >= limit:
            break
        found.append(slot)
    return found


def problems(spec: RuleLike) -> list[tuple[str, str, str]]:
    """What is wrong with a rule as (field, message, hint); the check that manifests are read with."""
    try:
        Rule.of(spec)
    except ScheduleError as error:
        return [(error.field, error.message, error.hint)]
    return []


def _source(spec: RuleLike) -> Every | At:
    given = [key for key in _KEYS if getattr(spec, key) is not None]
    if len(given) != 1:
        raise ScheduleError("rule", f"{len(given)} rules are given", f"give exactly one of {', '.join(_KEYS)}")
    for field, known in (("gap", GAPS), ("fold", FOLDS)):
        if getattr(spec, field) not in known:
            raise ScheduleError(field, f"is {getattr(spec, field)!r}", f"use one of {', '.join(known)}")
    zone = load_zone(spec.timezone)
    period = spec.interval_seconds if spec.interval_seconds is not None else (spec.every_n_minutes or 0) * 60
    if given[0] in ("interval_seconds", "every_n_minutes"):
        if not 0 < period <= 366 * 86_400:
            raise ScheduleError(given[0], f"is {getattr(spec, given[0])}", "use 1 second … 366 days")
        return Every(timedelta(seconds=period))
    cron = parse_cron(_expression(spec), spec.seed)
    if cron.every_hour:
        return At(cron, LocalClock(zone, "skip", "both"))
    return At(cron, LocalClock(zone, spec.gap, spec.fold))


def _expression(spec: RuleLike) -> str:
    if spec.hourly_at_minute is not None:
        if not 0 <= spec.hourly_at_minute <= 59:
            raise ScheduleError("hourly_at_minute", f"is {spec.hourly_at_minute}", "use 0 … 59")
        return f"{spec.hourly_at_minute} * * * *"
    if spec.daily_at is not None:
        return cron_of_day(spec.daily_at)
    return cron_of_week(spec.weekly_at) if spec.weekly_at is not None else spec.cron or ""
