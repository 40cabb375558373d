"""What an open snapshot costs, as pg_dump holds one: nothing that runs leave behind is removed meanwhile, and reads pass over it.

Usage: held_snapshot.py [SECONDS] [RUNS A SECOND]; starts runs of /bin/true at a fixed rate beside a transaction that stays open. Prints one JSON
line: CPU milliseconds of PostgreSQL a run in the first and the last seconds and their ratio, and of the entries that indexes of live runs
returned a run in the last seconds the most.
"""

import json
import sys
import time
from typing import Any

import psycopg
from bench_cpu import StackCpu
from bench_stack import whole_stack
from workloads import JOB, prepare, until_idle

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name, sql

SECONDS, RATE = 90, 100
# What is compared: the first and the last so many seconds.
SPAN_SECONDS = 15
CALLS_A_SECOND = 10
SHOWN_INDEXES = 4


class Load:
    """Starts runs at a fixed rate, and measures spans of it."""

    def __init__(self, stack: Stack, admin: AdminClient, rate: int) -> None:
        self._stack, self._admin, self._rate = stack, admin, rate
        pids = {name: record.pid for name, record in stack.processes().items()}
        self._cpu = StackCpu(pids, leader=leader_name(stack, admin))

    def run(self, seconds: float) -> tuple[float, dict[str, float]]:
        """CPU milliseconds of PostgreSQL a run, and the entries a run that indexes returned, while it starts runs for so long."""
        before, entries = self._cpu.seconds()["postgres"], self._entries()
        started, began = 0, time.monotonic()
        for call in range(round(seconds * CALLS_A_SECOND)):
            time.sleep(max(0.0, began + call / CALLS_A_SECOND - time.monotonic()))
            started += len(self._admin.start(JOB, count=self._rate // CALLS_A_SECOND))
        spent = (self._cpu.seconds()["postgres"] - before) * 1000 / started
        return spent, {name: (count - entries[name]) / started for name, count in self._entries().items()}

    def _entries(self) -> dict[str, int]:
        rows: list[dict[str, Any]] = sql(
            self._stack, "SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes WHERE relname = 'runs_live'"
        )
        return {row["indexrelname"]: row["idx_tup_read"] for row in rows}


def main() -> None:
    """Measure and print."""
    seconds, rate = (int(given) for given in (*sys.argv[1:3], *(str(SECONDS), str(RATE))[len(sys.argv[1:3]) :]))
    with whole_stack(executors=2, slots=16) as (stack, admin):
        prepare(admin, runs=300)
        load = Load(stack, admin, rate)
        with psycopg.connect(stack.endpoints().database_url) as dump:
            dump.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            dump.execute("SELECT count(*) FROM scheduler.runs_live")
            first, _ = load.run(SPAN_SECONDS)
            load.run(max(0, seconds - 2 * SPAN_SECONDS))
            last, entries = load.run(SPAN_SECONDS)
            until_idle(admin, seconds=60)
    most = sorted(entries.items(), key=lambda one: -one[1])[:SHOWN_INDEXES]
    figures = {
        "bench": "held_snapshot",
        "seconds": seconds,
        "runs_per_s": rate,
        "first_ms": round(first, 3),
        "last_ms": round(last, 3),
        "ratio": round(last / first, 2),
        "entries_per_run": {name: round(count, 1) for name, count in most},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
