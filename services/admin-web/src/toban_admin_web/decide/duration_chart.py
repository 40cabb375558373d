"""How long the last runs took, as bars of a picture. The table of the runs below it has the same numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_admin_web.decide.api_models import Run

WIDTH, HEIGHT = 600.0, 120.0
GAP = 2.0
SMALLEST = 2.0
"""Of a bar: a run of no time at all is still seen."""
WIDEST = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One run; places and sizes are in units of the picture."""

    run: Run
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationChart:
    """The bars from the oldest run on, and the longest and the middle duration, seconds; `middle_y` is where the middle one is."""

    bars: tuple[Bar, ...]
    longest: float
    middle: float
    middle_y: float


def duration_chart(runs: Sequence[Run], now: datetime) -> DurationChart | None:
    """Of runs that have started, the newest first; None without any. A run that goes on has lasted until now."""
    timed = [(run, _seconds(run, now)) for run in reversed(runs) if run.started_at is not None]
    if not timed:
        return None
    longest = max(seconds for _, seconds in timed) or 1.0
    middle = sorted(seconds for _, seconds in timed)[len(timed) // 2]
    step = min(WIDTH / len(timed), WIDEST + GAP)
    bars = tuple(
        Bar(
            run=run,
            x=round(number * step, 1),
            y=round(HEIGHT - _height(seconds, longest), 1),
            width=round(step - GAP, 1),
            height=_height(seconds, longest),
        )
        for number, (run, seconds) in enumerate(timed)
    )
    return DurationChart(
        bars=bars, longest=longest, middle=middle, middle_y=round(HEIGHT - _height(middle, longest), 1)
    )


def _seconds(run: Run, now: datetime) -> float:
    assert run.started_at is not None
    return max(0.0, ((run.finished_at or now) - run.started_at).total_seconds())


def _height(seconds: float, longest: float) -> float:
    return round(max(SMALLEST, seconds / longest * HEIGHT), 1)
