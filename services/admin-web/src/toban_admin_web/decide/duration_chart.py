"""How long the last runs took, as bars of a picture with axes. The table of the runs below it has the same numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.run_summary import run_summary
from toban_domain.run import FAILURES

WIDTH, HEIGHT = 720, 190
# Where the bars are: room for the seconds at the left, for the names of the lines at the right, for the mark of a failed run above.
LEFT, RIGHT, TOP, BOTTOM = 64.0, 620.0, 16.0, 180.0
GAP = 2.0
SMALLEST = 2.0
"""Of a bar: a run of no time at all is still seen."""
WIDEST = 24.0
# Between two names of lines.
APART = 14.0
# Seconds between two ticks.
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
MOST_TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One run; places and sizes are in units of the picture. `middle` is the x of its middle."""

    run: Run
    x: float
    y: float
    width: float
    height: float
    failed: bool

    @property
    def middle(self) -> float:
        """Where its mark is."""
        return round(self.x + self.width / 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A duration across the picture, seconds; `text_y` is where its name is, apart from the name of the other line."""

    name: str
    seconds: float
    y: float
    text_y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationChart:
    """The bars from the oldest run on, the ticks of the seconds as (seconds, y), and the lines.

    `times` are when the oldest, a middle and the newest run began.
    """

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, float], ...]
    lines: tuple[Line, ...]
    longest: float
    times: tuple[datetime, ...]


def duration_chart(runs: Sequence[Run], now: datetime) -> DurationChart | None:
    """Of runs that have started, the newest first; None without any. A run that goes on has lasted until now, and is in no line."""
    timed = [(run, _seconds(run, now)) for run in reversed(runs) if run.started_at is not None]
    if not timed:
        return None
    longest = max(seconds for _, seconds in timed)
    ticks = _ticks(longest)
    top = ticks[-1]
    step = min((RIGHT - LEFT) / len(timed), WIDEST + GAP)
    bars = tuple(_bar(run, seconds, LEFT + number * step, step, top) for number, (run, seconds) in enumerate(timed))
    began = [run.started_at for run, _ in timed if run.started_at is not None]
    whole = step * len(timed) > (RIGHT - LEFT) / 2
    times = (began[0], began[len(began) // 2], began[-1]) if whole and len(began) > 2 else (began[0], began[-1])
    return DurationChart(
        bars=bars,
        ticks=tuple((one, _y(one, top)) for one in ticks),
        lines=_lines(runs, top),
        longest=longest,
        times=times if len(began) > 1 else times[:1],
    )


def _bar(run: Run, seconds: float, x: float, step: float, top: float) -> Bar:
    y = min(_y(seconds, top), BOTTOM - SMALLEST)
    return Bar(
        run=run,
        x=round(x, 1),
        y=y,
        width=round(step - GAP, 1),
        height=round(BOTTOM - y, 1),
        failed=run.state in FAILURES,
    )


def _lines(runs: Sequence[Run], top: float) -> tuple[Line, ...]:
    found = run_summary(runs)
    if found.p50 is None or found.p95 is None:
        return ()
    low, high = _y(found.p50, top), _y(found.p95, top)
    # The upper name gives way, at the top the lower one.
    high_text = max(TOP, min(high, low - APART))
    low_text = max(low, high_text + APART)
    return (
        Line(name="p95", seconds=found.p95, y=high, text_y=round(high_text + 4, 1)),
        Line(name="p50", seconds=found.p50, y=low, text_y=round(low_text + 4, 1)),
    )


def _ticks(longest: float) -> list[float]:
    """From 0 to the first one that is not below the longest duration."""
    step = next((one for one in STEPS if longest <= one * MOST_TICKS), None)
    if step is None:
        days = int(longest // (MOST_TICKS * STEPS[-1])) + 1
        step = days * STEPS[-1]
    count = max(1, -int(-longest // step))
    return [round(step * number, 1) for number in range(count + 1)]


def _y(seconds: float, top: float) -> float:
    return round(BOTTOM - seconds / top * (BOTTOM - TOP), 1)


def _seconds(run: Run, now: datetime) -> float:
    assert run.started_at is not None
    return max(0.0, ((run.finished_at or now) - run.started_at).total_seconds())
