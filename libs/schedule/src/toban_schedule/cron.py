"""Cron expressions over local times without a zone: parsing with errors by field, and the iteration over their matches."""

from __future__ import annotations

import calendar
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import lru_cache
from typing import Any

from cronsim import CronSim, CronSimError

from toban_schedule import cron_fields, hash_field
from toban_schedule.spec import ScheduleError

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@every_minute": "* * * * *",
}
_ORIGIN = datetime(2000, 1, 1)  # noqa: DTZ001 (local time without a zone; only a place to parse from)
_EVERY_HOUR = frozenset(range(24))


class _Matches(CronSim):
    """Matches of an expression that may have 15W: the weekday (Monday to Friday) of the same month that is nearest to the 15th."""

    near: frozenset[int] = frozenset()

    def match_dom(self, d: date) -> bool:
        """True when the day of month matches."""
        return super().match_dom(d) or any(abs(n - d.day) <= 2 and _nearest(d, n) == d.day for n in self.near)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCron:
    """The values of an expression whose days are either days of the month or weekdays, in order. Weekdays: 0 is Sunday, 6 Saturday.

    Exactly one of `days`, `weekdays` and `last_day` restricts the days, or none.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    days: tuple[int, ...] = ()
    weekdays: tuple[int, ...] = ()
    last_day: bool = False


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. `every_hour`: its hour field matches all 24 hours, so it follows the clock and no DST policy applies."""

    expression: str
    every_hour: bool
    _template: _Matches = field(repr=False, compare=False)

    def walls(self, after: datetime) -> Iterator[datetime]:
        """Matching local times (naive) strictly after `after` (naive), in order; ends when there is none for 50 years."""
        # Parsing costs more than a step: each iterator is a copy of the parsed state, which steps never change in place.
        matches = copy.copy(self._template)
        matches.dt = after.replace(microsecond=0)
        return matches

    def day_matches(self, day: date) -> bool:
        """True when the expression has matches on this day."""
        return day.month in self._template.months and self._template.match_day(day)

    def by_minute(self) -> tuple[Cron, int]:
        """The expression with the first of its seconds alone, and how many seconds it has."""
        seconds = len(self._template.seconds)
        if seconds == 1:
            return self, 1
        template = copy.copy(self._template)
        template.seconds = {min(template.seconds)}
        # Expressions that are equal have the same matches.
        expression = f"{min(template.seconds)} {self.expression.split(maxsplit=1)[1]}"
        return replace(self, expression=expression, _template=template), seconds

    def plain(self) -> PlainCron | None:
        """The expression as values; None where its days need more, such as both kinds of days, MON#1, LW or 15W."""
        at = self._template
        week = {day % 7 if isinstance(day, int) else day for day in at.weekdays}
        every_day, every_weekday = set(range(1, 32)) <= at.days, set(range(7)) <= week
        if not at.day_and and (every_day or every_weekday):
            # Either one is enough, and one of them always matches.
            every_day = every_weekday = True
        days: set[int] = set() if every_day else set(at.days)
        weekdays: set[Any] = set() if every_weekday else week
        last_day = days == {at.LAST}
        if last_day:
            days = set()
        nth = any(not isinstance(day, int) for day in weekdays)
        if at.near or nth or (weekdays and (days or last_day)) or any(day < 1 for day in days):
            return None
        return PlainCron(
            seconds=tuple(sorted(at.seconds)),
            minutes=tuple(sorted(at.minutes)),
            hours=tuple(sorted(at.hours)),
            months=tuple(sorted(at.months)),
            days=tuple(sorted(days)),
            weekdays=tuple(sorted(weekdays)),
            last_day=last_day,
        )

    @property
    def a_day(self) -> int:
        """How many local times match on a day that matches."""
        template = self._template
        return len(template.hours) * len(template.minutes) * len(template.seconds)


def resolve(text: str, seed: str) -> str:
    """The expression in capitals, with aliases and each H replaced; raises ScheduleError naming the field that is wrong."""
    expression = ALIASES.get(text.strip().lower(), text.strip())
    if expression.startswith("@"):
        known = ", ".join(ALIASES)
        raise ScheduleError("cron", f"{text!r} is not an alias", f"use {known}, or interval_seconds")
    parts = expression.upper().split()
    if len(parts) not in (5, 6):
        raise ScheduleError(
            "cron",
            f"{text!r} has {len(parts)} fields",
            "write 5 (minute hour day month weekday), or 6 with seconds first",
        )
    return " ".join(_drawn(text, part, index, seed) for index, part in enumerate(parts, start=6 - len(parts)))


def parse_cron(text: str, seed: str = "") -> Cron:
    """The expression, H drawn from `seed`; raises ScheduleError naming the field that is wrong, or when it can never fire."""
    return _parse(text, resolve(text, seed))


@lru_cache(maxsize=4096)
def _parse(text: str, resolved: str) -> Cron:
    parts = resolved.split()
    fields = [cron_fields.plain(text, part, index) for index, part in enumerate(parts, start=6 - len(parts))]
    days = len(parts) - 3
    known, near = cron_fields.split_near(fields[days])
    # cronsim wants a day: where only nearest weekdays are named it gets one, which is taken out again.
    fields[days] = known or "L"
    try:
        template = _Matches(" ".join(fields), _ORIGIN)
    except CronSimError:
        raise never_fires(text) from None
    template.near = near
    if not known:
        template.days = set()
    cron = Cron(resolved, frozenset(template.hours) >= _EVERY_HOUR, template)
    if next(cron.walls(_ORIGIN), None) is None:
        raise never_fires(text)
    return cron


def never_fires(text: str) -> ScheduleError:
    """The error of an expression without a single slot."""
    return ScheduleError(
        "cron", f"{text!r} never fires", "look at day of month, month and day of week: no date has them all"
    )


def _drawn(text: str, part: str, index: int, seed: str) -> str:
    if not hash_field.uses_hash(part):
        return part
    drawn = hash_field.expand(part, index, seed)
    if drawn is None:
        low, high = hash_field.LIMITS[index]
        what = f"{part!r} is not a {cron_fields.NAMES[index]} in {text!r}"
        if backward := hash_field.backward_range(part):
            start, end = backward
            why = f"the start {start} of the range is greater than its end {end}"
            raise ScheduleError("cron", f"{what}: {why}", "H takes one range, which does not wrap around")
        raise ScheduleError("cron", what, f"write H, H/15, H({low}-{high}) or H({low}-{high})/10")
    return drawn


def _nearest(month: date, day: int) -> int:
    """The weekday nearest to a day of the month, within the month; 0 when the month has no such day."""
    first, last = calendar.monthrange(month.year, month.month)
    if day > last:
        return 0
    weekday = (first + day - 1) % 7
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < last else day - 2
    return day
