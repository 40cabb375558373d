"""A picture of which runs ran when, on which executor or of which job: lanes of bars, with more rows where runs overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.timeline_span import WIDTH, Span

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


def lane_of(run: Run, by: str, since: datetime, until: datetime, now: datetime) -> str:
    """The lane of a run that has started and ran between two times, else ""; also of one without an executor by executor."""
    if not run.started_at or run.started_at >= until or (run.started_at < since and (run.finished_at or now) <= since):
        return ""
    return run.executor if by == "executor" else run.job


def lanes(runs: Iterable[Run], *, by: str, span: Span, now: datetime) -> Sequence[Lane]:
    """Runs that ran in the span, by name of their lane."""
    found: dict[str, list[tuple[datetime, Run]]] = defaultdict(list)
    for run in runs:
        name = lane_of(run, by, span.since, span.until, now)
        if name and run.started_at:
            found[name].append((run.started_at, run))
    return [_lane(name, found[name], span, now) for name in sorted(found)]


def _lane(name: str, runs: Sequence[tuple[datetime, Run]], span: Span, now: datetime) -> Lane:
    """Each run in the first row that is free at its start."""
    ends: list[float] = []
    bars = []
    for start, run in sorted(runs, key=lambda one: (one[0], one[1].id)):
        left = min(span.x(start), WIDTH - SMALLEST)
        width = round(max(SMALLEST, span.x(run.finished_at or now) - left), 1)
        row = next((number for number, end in enumerate(ends) if end <= left), len(ends))
        ends[row : row + 1] = [left + width]
        bars.append(Bar(run=run, x=left, width=width, y=row * ROW))
    return Lane(name=name, height=len(ends) * ROW, bars=tuple(bars))
