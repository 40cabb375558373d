"""The ends of a job's runs day by day, as a map of weeks; its table has the same numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from toban_admin_web.decide.api_models import JobDay

SIDE = 14
GAP = 3
# Weeks that fit on a page of a telephone.
DAYS = 91
# A map is worth its place when the first runs ended at least so many days ago.
OLD_ENOUGH = 28
# Of days with ended runs.
TONES = ("good", "mixed", "bad", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """One day; places are in units of the picture. `tone` is one of TONES, or none for a day without ended runs."""

    day: date
    x: int
    y: int
    tone: str
    counts: JobDay | None

    @property
    def next(self) -> date:
        """The day after it."""
        return self.day + timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayMap:
    """A column for each week, Monday first, the days in their order; `months` are the names of months with the x of their first week."""

    squares: tuple[Square, ...]
    months: tuple[tuple[int, date], ...]
    width: int
    height: int

    @property
    def is_old_enough(self) -> bool:
        """Whether there are about as many days as the map has room for."""
        days = [number for number, one in enumerate(self.squares) if one.counts is not None]
        return bool(days) and len(self.squares) - days[0] > OLD_ENOUGH

    @property
    def with_runs(self) -> tuple[Square, ...]:
        """The days that have ended runs, newest first."""
        return tuple(one for one in reversed(self.squares) if one.counts is not None)


def day_map(found: Sequence[JobDay], today: date, days: int = DAYS) -> DayMap:
    """The last `days` days up to `today`, of UTC."""
    by_day = {one.day: one for one in found}
    first = today - timedelta(days=days - 1)
    monday = first - timedelta(days=first.weekday())
    squares, months = [], []
    for number in range(days):
        day = first + timedelta(days=number)
        week = (day - monday).days // 7
        x = week * (SIDE + GAP)
        if day.day == 1 or number == 0:
            months.append((x, day))
        counts = by_day.get(day.isoformat())
        squares.append(Square(day=day, x=x, y=day.weekday() * (SIDE + GAP), tone=_tone(counts), counts=counts))
    weeks = (today - monday).days // 7 + 1
    # Two names that would cover each other: the month that begins is the one that lasts.
    apart = [
        one
        for one, after in zip(months, [*months[1:], None], strict=True)
        if after is None or after[0] - one[0] > 2 * SIDE
    ]
    return DayMap(squares=tuple(squares), months=tuple(apart), width=weeks * (SIDE + GAP), height=7 * (SIDE + GAP))


def _tone(counts: JobDay | None) -> str:
    if counts is None:
        return "none"
    if counts.failed:
        return "mixed" if counts.succeeded else "bad"
    return "good" if counts.succeeded else "other"
