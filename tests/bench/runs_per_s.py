"""Durable subprocess runs a second: a backlog of /bin/true on a stack of its own, from the first enqueue to the last exit.

Usage: runs_per_s.py [--class shared|isolated|both] [RUNS] [EXECUTORS] [SLOTS]; prints one JSON line for each class with the CPU milliseconds
a run by class of process, a better measure than the rate on a busy machine, what PostgreSQL writes a run, and the median latency of a run
on the idle stack. `both` measures the two classes by turns on two stacks that run beside each other, and adds a line with their ratio.
Everything runs on this machine: PostgreSQL with fsync, Redis, two coordinators, the executors. Class `isolated` needs root.
"""

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench_cpu import StackCpu
from bench_stack import whole_stack
from bench_wal import StackWal
from workloads import Backlog, backlog, delays, prepare, timed_start

from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name

ROUNDS, SINGLES = 5, 40
# Until each session of PostgreSQL has reported its flushes, seconds.
REPORTED_SECONDS = 1.5


@dataclass
class Side:
    """A stack of one class, and what was measured on it."""

    kind: str
    admin: AdminClient
    cpu: StackCpu
    wal: StackWal
    backlogs: list[Backlog] = field(default_factory=list)
    flushes: list[Mapping[str, float]] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)

    def measure(self, runs: int) -> None:
        """One backlog, and single runs on the idle stack."""
        mark = self.wal.mark()
        self.backlogs.append(backlog(self.admin, self.cpu, runs=runs, wal=self.wal))
        time.sleep(REPORTED_SECONDS)
        self.flushes.append(self.wal.flushes_per_run(mark, self.wal.mark(), runs))
        moments = dict(timed_single(self.admin) for _ in range(SINGLES))
        self.idle += delays(self.admin, moments)

    @property
    def runs_per_s(self) -> float:
        """The median of the backlogs."""
        return statistics.median(one.runs_per_s for one in self.backlogs)

    def figure(self) -> dict[str, object]:
        """For the line of the class."""
        cpu = _medians([one.cpu_ms_per_run for one in self.backlogs])
        written = _medians([one.written for one in self.backlogs]) | _medians(self.flushes)
        return {
            "class": self.kind,
            "enqueue_s": round(statistics.median(one.enqueue_seconds for one in self.backlogs), 3),
            "runs_per_s": round(self.runs_per_s),
            "idle_p50_ms": round(statistics.median(self.idle), 2),
            "cpu_ms_per_run": cpu,
            "written_per_run": written,
        }


def _medians(taken: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure that each of them has."""
    common = [name for name in taken[0] if all(name in one for one in taken)]
    return {name: round(statistics.median(one[name] for one in taken), 3) for name in common}


def timed_single(admin: AdminClient) -> tuple[int, float]:
    """A run from its start to its end."""
    run_id, moment = timed_start(admin)
    admin.until_ended(run_id)
    return run_id, moment


def main() -> None:
    """Run the backlogs and print the rates and where the CPU went."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--class", dest="kind", choices=["shared", "isolated", "both"], default="shared")
    parser.add_argument("numbers", nargs="*", type=int)
    given = parser.parse_args()
    runs, executors, slots = (*given.numbers, *(2000, 2, 16)[len(given.numbers) :])
    kinds = ["shared", "isolated"] if given.kind == "both" else [given.kind]
    with contextlib.ExitStack() as context:
        sides = []
        for kind in kinds:
            stack, admin = context.enter_context(
                whole_stack(executors=executors, slots=slots, environment={"SCHEDULER_ISOLATION": kind})
            )
            prepare(admin)
            pids = {name: record.pid for name, record in stack.processes().items()}
            cpu = StackCpu(pids, leader=leader_name(stack, admin))
            sides.append(Side(kind, admin, cpu, StackWal(stack.endpoints().database_url)))
        for number in range(ROUNDS if len(sides) > 1 else 1):
            for side in sides if number % 2 else sides[::-1]:
                side.measure(runs)
    shape = {"bench": "runs_per_s", "runs": runs, "executors": executors, "slots": slots}
    for side in sides:
        print(json.dumps({**shape, **side.figure()}))
    if len(sides) > 1:
        shared, isolated = sides
        more = statistics.median(isolated.idle) - statistics.median(shared.idle)
        ratio = statistics.median(
            b.runs_per_s / a.runs_per_s for a, b in zip(shared.backlogs, isolated.backlogs, strict=True)
        )
        print(
            json.dumps(
                {"bench": "runs_per_s", "isolated_to_shared": round(ratio, 3), "idle_p50_more_ms": round(more, 2)}
            )
        )


if __name__ == "__main__":
    main()
