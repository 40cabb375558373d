"""Durable subprocess runs a second: a backlog of /bin/true on a stack of its own, from the first enqueue to the last exit.

Usage: runs_per_s.py [RUNS] [EXECUTORS] [SLOTS]; prints one JSON line. Everything runs on this machine: PostgreSQL with fsync, Redis, two
coordinators, the executors.
"""

import json
import sys
import time

from bench_stack import bench_stack, job

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
EXECUTORS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
SLOTS = int(sys.argv[3]) if len(sys.argv) > 3 else 16
CHUNK = 500


def main() -> None:
    """Enqueue RUNS in chunks, wait until every one is terminal, print the rate and where the time went."""
    with bench_stack(executors=EXECUTORS, slots=SLOTS) as admin:
        admin.apply(job("bench-true", ["/bin/true"]))
        warm = admin.start("bench-true", count=50)
        for run_id in warm:
            admin.until_ended(run_id)
        begun = time.time()
        ids: list[int] = []
        while len(ids) < RUNS:
            ids += admin.start("bench-true", count=min(CHUNK, RUNS - len(ids)))
        enqueued = time.time()
        last = admin.until_ended(ids[-1], seconds=300)
        admin.until(
            lambda: not (cluster := admin.cluster()).pending and not cluster.running, seconds=300, of="all ended"
        )
        wanted = set(ids)
        runs = [run for run in admin.runs(job="bench-true") if run.id in wanted]
        ended = max(run.finished_at.ToMicroseconds() for run in runs) / 1e6
        bad = [run.id for run in runs if run.state != "SUCCEEDED" or run.attempt != 1 or len({run.token}) != 1]
        assert last.state == "SUCCEEDED" and not bad and len(runs) == RUNS, f"{len(runs)} runs, not right: {bad[:5]}"
        figure = {
            "bench": "runs_per_s",
            "runs": RUNS,
            "executors": EXECUTORS,
            "slots": SLOTS,
            "enqueue_s": round(enqueued - begun, 3),
        }
        print(json.dumps({**figure, "seconds": round(ended - begun, 3), "runs_per_s": round(RUNS / (ended - begun))}))


if __name__ == "__main__":
    main()
