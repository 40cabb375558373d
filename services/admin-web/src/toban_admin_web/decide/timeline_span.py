"""The span of time of the timeline: its cells and grid, where now is, and the spans that its links lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeVar

# Units of the drawing: it is as wide as the page.
WIDTH = 1000.0
MOST_CELLS = 60
MOST_INTERVALS = 8
SHORTEST, LONGEST = timedelta(minutes=4), timedelta(days=31)
"""How far links narrow and widen the span."""
_DAY = 86400
_CELLS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600, 720, 900, 1800, 3600, 7200, 10800, 21600, 43200, _DAY)
_GRID = tuple(60 * one for one in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200))
# A label of hours and minutes has room in such a part of the width on a phone, too.
_ROOM = WIDTH / 10
_Rounded = TypeVar("_Rounded", datetime, timedelta)


@dataclass(frozen=True, slots=True)
class Interval:
    """Between two lines of the grid, or a line and an edge. `label`: its begin is a line, and the text has room."""

    since: datetime
    until: datetime
    x: float
    width: float
    label: bool


@dataclass(frozen=True, slots=True)
class Span:
    """From `since` until `until`, which is later."""

    since: datetime
    until: datetime

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return self.until - self.since

    @property
    def cell(self) -> timedelta:
        """The length of a cell: round, so that a span that goes on with the clock keeps its cells."""
        return _step(self.length, _CELLS, MOST_CELLS)

    @property
    def days(self) -> bool:
        """Whether the lines of the grid are days, not hours and minutes."""
        return self._grid >= timedelta(days=1)

    @property
    def _grid(self) -> timedelta:
        return _step(self.length, _GRID, MOST_INTERVALS)

    def x(self, at: datetime) -> float:
        """Where a time is in the drawing, at an edge when it is outside."""
        return round(min(WIDTH, max(0.0, (at - self.since) / self.length * WIDTH)), 1)

    def text(self, since: datetime, until: datetime) -> str:
        """A part of it, as people read it: in UTC, with days or seconds where these matter."""
        form = ("%m-%d " if self.days else "") + ("%H:%M:%S" if since.second or until.second else "%H:%M")
        return f"{since:{form}}–{until:{form}} UTC"

    def intervals(self) -> Sequence[Interval]:
        """Of the grid."""
        found = []
        for since, until in pairwise(self._lines()):
            x = self.x(since)
            width = round(self.x(until) - x, 1)
            on_line = since == _before(since, self._grid)
            found.append(Interval(since, until, x, width, on_line and width >= _ROOM))
        return found

    def _lines(self) -> Sequence[datetime]:
        step = self._grid
        at = _before(self.since, step) + step
        found = [self.since]
        while at < self.until:
            found.append(at)
            at += step
        return [*found, self.until]

    def narrowed(self) -> Span | None:
        """The half in the middle; None when that is too short to read."""
        half = _round(self.length / 2)
        since = _round(self.since + self.length / 4)
        return None if half < SHORTEST else Span(since, since + half)

    def widened(self, now: datetime) -> Span | None:
        """Twice as long around the same middle, not into the future; None when it is too long already."""
        if self.length * 2 > LONGEST:
            return None
        until = _round(min(self.until + self.length / 2, max(now, self.until)))
        return Span(until - _round(self.length * 2), until)

    def earlier(self) -> Span | None:
        """Half of its length before; None when it is too long to move."""
        if self.length > LONGEST:
            return None
        since = _round(self.since - self.length / 2)
        return Span(since, since + _round(self.length))

    def later(self, now: datetime) -> Span | None:
        """Half of its length after; None when that is the future."""
        if self.until >= now:
            return None
        until = _round(min(self.until + self.length / 2, now))
        return Span(until - _round(self.length), until)


def links(span: Span, now: datetime) -> dict[str, Span]:
    """What the buttons lead to, by their names; one that leads nowhere is left out."""
    found = {
        "earlier": span.earlier(),
        "closer": span.narrowed(),
        "wider": span.widened(now),
        "later": span.later(now),
    }
    return {name: one for name, one in found.items() if one is not None}


def _step(length: timedelta, steps: Sequence[int], most: int) -> timedelta:
    """The first of the steps of which at most `most` fill the length, else days."""
    seconds = length.total_seconds()
    found = next((one for one in steps if seconds / one <= most), 0)
    return timedelta(seconds=found or _DAY * (int(seconds / _DAY / most) + 1))


def _before(at: datetime, step: timedelta) -> datetime:
    """The last multiple of the step until then, counted from 1970 on, as the coordinators count."""
    origin = datetime(1970, 1, 1, tzinfo=UTC)
    return origin + (at - origin) // step * step


def _round(given: _Rounded) -> _Rounded:
    """In whole seconds, as addresses have them."""
    if isinstance(given, timedelta):
        return timedelta(seconds=int(given.total_seconds()))
    return given.replace(microsecond=0)
