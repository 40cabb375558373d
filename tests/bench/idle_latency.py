"""Idle latency: one /bin/true at a time, 100 ms apart, from the call of StartRuns to the exit of the process.

Usage: idle_latency.py [RUNS]; prints one JSON line. The exit is the executor's wall clock, the start this process's: one machine, one clock.
"""

import json
import statistics
import sys
import time

from bench_stack import bench_stack, job

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
PAUSE = 0.1


def main() -> None:
    """Start RUNS runs one by one and print the percentiles of enqueue → exit in milliseconds."""
    with bench_stack() as admin:
        admin.apply(job("bench-true", ["/bin/true"]))
        for run_id in admin.start("bench-true", count=50):
            admin.until_ended(run_id)
        began: dict[int, float] = {}
        for _ in range(RUNS):
            moment = time.time()
            began[admin.start("bench-true")[0]] = moment
            time.sleep(PAUSE)
        for run_id in began:
            admin.until_ended(run_id)
        ends = {run.id: run.finished_at.ToMicroseconds() / 1e6 for run in admin.runs(job="bench-true")}
        delays = sorted((ends[run_id] - moment) * 1000 for run_id, moment in began.items())
        percentiles = statistics.quantiles(delays, n=100)
        figure = {"bench": "idle_latency", "runs": RUNS, "p50_ms": round(percentiles[49], 2)}
        print(json.dumps({**figure, "p90_ms": round(percentiles[89], 2), "p99_ms": round(percentiles[98], 2)}))


if __name__ == "__main__":
    main()
