"""Whether a process of Toban grows without end under load: private memory of each service and each guard, over an hour of runs.

Usage: memory_slope.py [SECONDS] [RUNS_PER_S]; prints one JSON line a process, with its slope after the first sixth (ten minutes of an hour), in
which caches fill. Exit code 1 when one grows by more than GOAL. An hour counts; two minutes only show that it works.
"""

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench_stack import whole_stack
from workloads import JOB, prepare, until_idle

from toban_executor.guard.process_tree import descendants, slot_of
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
RUNS_PER_S = float(sys.argv[2]) if len(sys.argv) > 2 else 100.0
# MB an hour that a process may grow.
GOAL = 1.0
SETTLES = 6
SAMPLES = 360
TICK = 0.1
# PostgreSQL, Redis and the object store keep to limits of their own.
OURS = ("coordinator", "executor", "log-archiver", "admin-web")
Sample = tuple[float, float]


def main() -> None:
    """Load the stack, print the slopes, fail for one that is too steep."""
    with whole_stack() as (stack, admin):
        prepare(admin)
        taken, runs = load(stack, admin)
        until_idle(admin, seconds=120.0)
    slopes = {name: slope(samples) for name, samples in sorted(taken.items())}
    for name, found in slopes.items():
        first, last = (round(taken[name][at][1], 2) for at in (0, -1))
        line = {
            "bench": "memory_slope",
            "process": name,
            "first_mb": first,
            "last_mb": last,
            "mb_per_hour": round(found, 2),
            # Caches that still fill grow more slowly by then, a leak does not.
            "mb_per_hour_last_half": round(slope(taken[name][len(taken[name]) // 2 :]), 2),
        }
        print(json.dumps({**line, "seconds": SECONDS, "runs": runs}))
    if steep := [name for name, found in slopes.items() if found > GOAL]:
        sys.exit(f"more than {GOAL:g} MB an hour: {', '.join(steep)}")


def load(stack: Stack, admin: AdminClient) -> tuple[Mapping[str, Sequence[Sample]], int]:
    """Starts runs for SECONDS; samples by the name of each process that was there all the time after the first part, and the number of runs."""
    taken: dict[str, list[Sample]] = defaultdict(list)
    began, started, next_sample, sampled = time.monotonic(), 0, SECONDS / SETTLES, 0
    while (passed := time.monotonic() - began) < SECONDS:
        if due := int(passed * RUNS_PER_S) - started:
            # What a slow machine has missed is not made up for at once.
            started += len(admin.start(JOB, count=min(due, int(RUNS_PER_S))))
        if passed >= next_sample:
            next_sample, sampled = next_sample + SECONDS / SAMPLES, sampled + 1
            for name, pid in processes(stack):
                if megabytes := private_megabytes(pid):
                    taken[name].append((passed, megabytes))
        time.sleep(TICK)
    return {name: samples for name, samples in taken.items() if len(samples) > 0.9 * sampled}, started


def processes(stack: Stack) -> Iterator[tuple[str, int]]:
    """Names and pids of the services, and of what executors keep for jobs. Jobs themselves are among them and end soon."""
    for name, record in stack.processes().items():
        if name.startswith(OURS):
            yield name, record.pid
        if name.startswith("executor"):
            for pid in descendants(record.pid):
                slot = slot_of(pid)
                yield (f"{name} pid {pid}" if slot is None else f"{name} slot {slot}"), pid


def private_megabytes(pid: int) -> float:
    """What the process shares with no file, MB; 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("RssAnon:")), 0.0)


def slope(samples: Sequence[Sample]) -> float:
    """MB an hour, by least squares."""
    seconds, megabytes = zip(*samples, strict=True)
    return statistics.linear_regression(seconds, megabytes).slope * 3600


if __name__ == "__main__":
    main()
