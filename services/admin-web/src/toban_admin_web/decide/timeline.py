"""A picture of which runs ran when, on which executor or of which job: lanes of bars, with more rows where runs overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_admin_web.decide.api_models import Run

# Units of the drawing: it is as wide as the page.
WIDTH = 1000.0
ROW = 14
SMALLEST = 2.0
BY = ("executor", "job")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A run from its start to its end, or until now."""

    run: Run
    x: float
    width: float
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The runs of one executor or job; `height` in units of the drawing."""

    name: str
    height: int
    bars: tuple[Bar, ...]


def lanes(runs: Iterable[Run], *, by: str, since: datetime, until: datetime, now: datetime) -> Sequence[Lane]:
    """Runs that have started and ran between two times, by name of their lane. One without an executor is left out by executor."""
    found: dict[str, list[tuple[datetime, Run]]] = defaultdict(list)
    for run in runs:
        name = run.executor if by == "executor" else run.job
        if name and run.started_at and run.started_at < until and (run.finished_at or now) >= since:
            found[name].append((run.started_at, run))
    return [_lane(name, found[name], since, until, now) for name in sorted(found)]


def _lane(name: str, runs: Sequence[tuple[datetime, Run]], since: datetime, until: datetime, now: datetime) -> Lane:
    """Each run in the first row that is free at its start."""
    span = (until - since).total_seconds()
    ends: list[float] = []
    bars = []
    for start, run in sorted(runs, key=lambda one: (one[0], one[1].id)):
        left = max(0.0, (start - since).total_seconds() / span * WIDTH)
        right = min(WIDTH, ((run.finished_at or now) - since).total_seconds() / span * WIDTH)
        left = round(min(left, WIDTH - SMALLEST), 1)
        width = round(max(SMALLEST, right - left), 1)
        row = next((number for number, end in enumerate(ends) if end <= left), len(ends))
        ends[row : row + 1] = [left + width]
        bars.append(Bar(run=run, x=left, width=width, y=row * ROW))
    return Lane(name=name, height=len(ends) * ROW, bars=tuple(bars))
