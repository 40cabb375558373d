"""CPU of each process while many schedules are there and none is due.

Usage: idle_cpu.py [SCHEDULES] [SECONDS]; prints one JSON line, in percent of one core.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta

from bench_cpu import used
from bench_stack import job, schedules, whole_stack

from toban_testing.stack_fixtures import leader_name

SCHEDULES = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
# What applying has left behind (autovacuum, caches) ends meanwhile, seconds.
REST = 15.0


def main() -> None:
    """Apply the schedules, wait, and measure."""
    with whole_stack() as (stack, admin):
        admin.apply(job("bench-true", ["/bin/true"]))
        # Twelve hours away, so that nothing is due, and nothing is near.
        far = datetime.now(UTC) + timedelta(hours=12)
        for batch in schedules(SCHEDULES, job="bench-true", daily_at=f"{far:%H:%M}"):
            admin.apply(*batch, timeout=120.0)
        time.sleep(REST)
        names = {name: record.pid for name, record in stack.processes().items()}
        leader = leader_name(stack, admin)
        before, began = {name: used(pid) for name, pid in names.items()}, time.monotonic()
        time.sleep(SECONDS)
        passed = time.monotonic() - began
        percent = {name: round((used(pid) - before[name]) / passed * 100, 2) for name, pid in names.items()}
        line = {"bench": "idle_cpu", "schedules": SCHEDULES, "seconds": SECONDS, "leader_percent": percent.pop(leader)}
        print(json.dumps({**line, **{name.replace("-", "_") + "_percent": share for name, share in percent.items()}}))


if __name__ == "__main__":
    main()
