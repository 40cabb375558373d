"""Durable subprocess runs a second: a backlog of /bin/true on a stack of its own, from the first enqueue to the last exit.

Usage: runs_per_s.py [RUNS] [EXECUTORS] [SLOTS]; prints one JSON line with the CPU milliseconds a run by class of process, a better measure
than the rate on a busy machine. Everything runs on this machine: PostgreSQL with fsync, Redis, two coordinators, the executors.
"""

import json
import sys

from bench_cpu import StackCpu
from bench_stack import whole_stack
from workloads import backlog, prepare

from toban_testing.stack_fixtures import leader_name

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
EXECUTORS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
SLOTS = int(sys.argv[3]) if len(sys.argv) > 3 else 16


def main() -> None:
    """Run the backlog and print the rate and where the CPU went."""
    with whole_stack(executors=EXECUTORS, slots=SLOTS) as (stack, admin):
        prepare(admin)
        pids = {name: record.pid for name, record in stack.processes().items()}
        done = backlog(admin, StackCpu(pids, leader=leader_name(stack, admin)), runs=RUNS)
    figure = {
        "bench": "runs_per_s",
        "runs": RUNS,
        "executors": EXECUTORS,
        "slots": SLOTS,
        "enqueue_s": round(done.enqueue_seconds, 3),
        "seconds": round(done.seconds, 3),
        "runs_per_s": round(done.runs_per_s),
        "cpu_ms_per_run": {kind: round(spent, 3) for kind, spent in done.cpu_ms_per_run.items()},
    }
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
