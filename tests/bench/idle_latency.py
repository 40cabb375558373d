"""Idle latency: one /bin/true at a time, 100 ms apart, from the call of StartRuns to the exit of the process.

Usage: idle_latency.py [RUNS]; prints two JSON lines: asked of the leader, and of a coordinator that stands by (every second run each, side by
side). The exit is the executor's wall clock, the start this process's: one machine, one clock.
"""

import json
import statistics
import sys
import time
from collections.abc import Sequence

from bench_stack import bench_stack
from workloads import delays, prepare, timed_start

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
PAUSE = 0.1


def main() -> None:
    """Start RUNS runs of each kind one by one and print the percentiles of enqueue → exit in milliseconds."""
    with bench_stack() as admin:
        prepare(admin)
        cluster = admin.cluster()
        standby = next(one.address for one in cluster.coordinators if one.address != cluster.leader_address)
        asked = {"leader": cluster.leader_address, "standby": standby}
        began: dict[str, dict[int, float]] = {kind: {} for kind in asked}
        for _ in range(RUNS):
            for kind, address in asked.items():
                admin.prefer(address)
                run_id, moment = timed_start(admin)
                began[kind][run_id] = moment
                time.sleep(PAUSE)
        for kind, moments in began.items():
            print(json.dumps(figure(kind, delays(admin, moments))))


def figure(kind: str, measured: Sequence[float]) -> dict[str, object]:
    """The line of one kind of call."""
    percentiles = statistics.quantiles(measured, n=100)
    p50, p90, p99 = (round(percentiles[index - 1], 2) for index in (50, 90, 99))
    return {
        "bench": "idle_latency",
        "asked": kind,
        "runs": len(measured),
        "p50_ms": p50,
        "p90_ms": p90,
        "p99_ms": p99,
    }


if __name__ == "__main__":
    main()
