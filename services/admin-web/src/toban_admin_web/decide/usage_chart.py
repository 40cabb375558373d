"""CPU and memory of a run that runs, as two lines over time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from toban_admin_web.decide.api_models import UsageSample

WIDTH, HEIGHT = 300, 28
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class UsageLine:
    """The latest value and the highest one, and the line as a path."""

    now: float
    peak: float
    path: str


@dataclass(frozen=True, slots=True)
class UsageChart:
    """`cpu` in cores, None while there is one sample only; `memory` in MiB."""

    cpu: UsageLine | None
    memory: UsageLine
    processes: int
    cpu_seconds: float


def usage_chart(samples: Sequence[UsageSample]) -> UsageChart | None:
    """None without samples."""
    timed = [(one.at.timestamp(), one) for one in samples if one.at is not None]
    if not timed:
        return None
    cores = [
        (at, (one.cpu_seconds - before.cpu_seconds) / (at - then))
        for (then, before), (at, one) in itertools.pairwise(timed)
        if at > then
    ]
    latest = timed[-1][1]
    return UsageChart(
        cpu=_line(cores) if cores else None,
        memory=_line([(at, one.memory_bytes / MEBIBYTE) for at, one in timed]),
        processes=latest.processes,
        cpu_seconds=latest.cpu_seconds,
    )


def _line(points: Sequence[tuple[float, float]]) -> UsageLine:
    begin, end = points[0][0], points[-1][0]
    peak = max(value for _, value in points)
    placed = [
        f"{(at - begin) / ((end - begin) or 1) * WIDTH:.1f} {HEIGHT - 1 - value / (peak or 1) * (HEIGHT - 2):.1f}"
        for at, value in points
    ]
    return UsageLine(points[-1][1], peak, "M" + "L".join(placed))
