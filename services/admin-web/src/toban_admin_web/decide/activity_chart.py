"""The last 24 hours as a picture: runs by result in bars of five minutes, and lines of the wait and of the slots in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from toban_admin_web.decide.api_models import ActivityInterval

INTERVAL = timedelta(minutes=5)
# The picture begins with a whole hour, so that it has up to 25 hours of which the last one goes on.
HOURS = 25
INTERVALS = HOURS * 12
STEP = 3
WIDTH, HEIGHT, LINE_HEIGHT = INTERVALS * STEP, 72, 28
SMALLEST = 2.0
"""Of a part of a bar: one failure among thousands is still seen."""
LABEL_EVERY = timedelta(hours=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A part of the picture that leads to the runs that ended in it: an hour, or an interval with failures."""

    since: datetime
    until: datetime
    x: int
    width: int
    succeeded: int
    failed: int
    other: int


@dataclass(frozen=True, slots=True)
class Line:
    """The path of a line in a picture of WIDTH × LINE_HEIGHT, and its highest value."""

    path: str
    peak: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityChart:
    """`bars`: tone → path. `labels`: each third hour. `peak`: most runs of an interval."""

    bars: dict[str, str]
    hours: Sequence[Spot]
    failures: Sequence[Spot]
    labels: Sequence[datetime]
    succeeded: int
    failed: int
    other: int
    peak: int
    wait: Line
    busy: Line

    @property
    def runs(self) -> int:
        """All that ended."""
        return self.succeeded + self.failed + self.other


def activity_chart(intervals: Sequence[ActivityInterval]) -> ActivityChart | None:
    """None while no interval is known."""
    timed = [(one.begins_at, one) for one in intervals if one.begins_at is not None]
    if not timed:
        return None
    begin = _hour_of(timed[-1][0]) - timedelta(hours=HOURS - 1)
    placed = [(int((at - begin) / INTERVAL) * STEP, one) for at, one in timed if at >= begin]
    peak = max(one.succeeded + one.failed + one.other for _, one in placed)
    return ActivityChart(
        bars=_bars(placed, peak or 1),
        hours=_hours(timed, begin),
        failures=[_spot(begin, x, STEP, [one]) for x, one in placed if one.failed],
        labels=[begin + LABEL_EVERY * number for number in range(HOURS // 3 + 1)],
        succeeded=sum(one.succeeded for _, one in placed),
        failed=sum(one.failed for _, one in placed),
        other=sum(one.other for _, one in placed),
        peak=peak,
        wait=_line(placed, lambda one: one.wait_seconds or 0.0),
        busy=_line(placed, lambda one: one.busy_slots),
    )


def _bars(placed: Sequence[tuple[int, ActivityInterval]], peak: int) -> dict[str, str]:
    paths: dict[str, list[str]] = {"good": [], "neutral": [], "bad": []}
    for x, one in placed:
        y = float(HEIGHT)
        for tone, runs in (("good", one.succeeded), ("neutral", one.other), ("bad", one.failed)):
            if runs:
                height = max(SMALLEST, runs / peak * (HEIGHT - 2 * SMALLEST))
                y = max(0.0, y - height)
                paths[tone].append(f"M{x} {y:.1f}h{STEP - 1}v{height:.1f}h-{STEP - 1}z")
    return {tone: "".join(parts) for tone, parts in paths.items() if parts}


def _hours(timed: Sequence[tuple[datetime, ActivityInterval]], begin: datetime) -> list[Spot]:
    by_hour: dict[datetime, list[ActivityInterval]] = {}
    for at, one in timed:
        if at >= begin:
            by_hour.setdefault(_hour_of(at), []).append(one)
    return [
        _spot(begin, int((hour - begin) / INTERVAL) * STEP, 12 * STEP, found) for hour, found in sorted(by_hour.items())
    ]


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _spot(begin: datetime, x: int, width: int, found: Sequence[ActivityInterval]) -> Spot:
    since = begin + INTERVAL * (x // STEP)
    return Spot(
        since=since,
        until=since + INTERVAL * (width // STEP),
        x=x,
        width=width,
        succeeded=sum(one.succeeded for one in found),
        failed=sum(one.failed for one in found),
        other=sum(one.other for one in found),
    )


def _line(placed: Sequence[tuple[int, ActivityInterval]], value: Callable[[ActivityInterval], float]) -> Line:
    values = [(x, value(one)) for x, one in placed]
    peak = max(each for _, each in values)
    room = LINE_HEIGHT - SMALLEST
    points = [f"{x + STEP // 2} {LINE_HEIGHT - 1 - each / (peak or 1) * room:.1f}" for x, each in values]
    return Line("M" + "L".join(points), peak)
