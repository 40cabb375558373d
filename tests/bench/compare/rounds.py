"""The measurements of one pair, spread over its time so that a disturbance of some seconds acts on every commit alike.

Single runs alternate between the commits one by one, while all stacks are idle; the backlog of a commit is cut into slices that alternate
too. Each slice begins with another commit, so that none is always first, or always after the same other one.
"""

import statistics
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench_cpu import CLASSES
from bench_wal import FIGURES as WRITTEN
from workloads import Backlog, Irregular

from compare.side import Side
from compare.verdict import CPU, LATENCY, RATE

SLICES = 6
# How often a slice is tried in which a run failed.
TRIES = 3
# Between two single runs, seconds: with two commits 100 ms of idle time for each.
PAUSE = 0.05
# Before single runs, so that what the backlogs left behind is over, seconds.
COOL_DOWN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What one pair measured of one commit: the figures by name, CPU milliseconds a run by class, and what PostgreSQL wrote a run."""

    figures: Mapping[str, float]
    cpu_classes: Mapping[str, float]
    written: Mapping[str, float] = field(default_factory=dict)


class Rounds:
    """Measures every side once a round, one at a time, the others idle. The order goes on over the rounds."""

    def __init__(self, sides: Sequence[Side], *, runs: int, singles: int) -> None:
        self._order = deque(sides)
        self._runs = runs // SLICES
        self._singles = singles

    def measure(self) -> dict[str, Sample]:
        """The samples of one pair by label. Raises Irregular, TimeoutError, TobanError, ProcessLookupError."""
        latencies = self._latencies()
        backlogs: dict[str, list[Backlog]] = {side.label: [] for side in self._order}
        for _ in range(SLICES):
            for side in self._order:
                backlogs[side.label].append(_slice(side, self._runs))
            self._order.rotate(1)
        return {label: _sample(done, latencies[label]) for label, done in backlogs.items()}

    def _latencies(self) -> dict[str, float]:
        """The median of single runs, milliseconds."""
        time.sleep(COOL_DOWN_SECONDS)
        for side in self._order:
            side.find_leader()
        started: dict[str, dict[int, float]] = {side.label: {} for side in self._order}
        for _ in range(self._singles):
            for side in self._order:
                run_id, moment = side.start_one()
                started[side.label][run_id] = moment
                time.sleep(PAUSE)
        return {side.label: statistics.median(side.delays(started[side.label])) for side in self._order}


def _slice(side: Side, runs: int) -> Backlog:
    for _ in range(TRIES - 1):
        try:
            return side.backlog(runs)
        except Irregular as error:
            sys.stderr.write(f"{side.label} is measured again: {error}\n")
    return side.backlog(runs)


def _sample(backlogs: Sequence[Backlog], latency: float) -> Sample:
    """Slices are equally long, so that means are those of the whole backlog."""
    spent = {kind: statistics.fmean(one.cpu_ms_per_run[kind] for one in backlogs) for kind in (*CLASSES, "total")}
    rate = sum(one.runs for one in backlogs) / sum(one.seconds for one in backlogs)
    known = [name for name in WRITTEN if all(name in one.written for one in backlogs)]
    written = {name: statistics.fmean(one.written[name] for one in backlogs) for name in known}
    return Sample({CPU.name: spent.pop("total"), RATE.name: rate, LATENCY.name: latency}, spent, written)
