"""What an idle stack costs: CPU and wake-ups of its processes, and what PostgreSQL executes, commits and writes, over a quiet minute.

Usage: idle_cpu.py [SCHEDULES] [SECONDS] | idle_cpu.py up [SECONDS]; prints one JSON line, CPU in percent of one core, the rest a second.
Without `up`: two coordinators, two executors and a log-archiver with many schedules, none due. With `up`: all that `make up` starts, its
supervisor included, with the examples that it applies, whose schedules are switched off for the minute.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from bench_cpu import Idle
from bench_stack import job, schedules, whole_stack
from bench_wal import StackWal

from toban_stack.stack import Stack
from toban_stack.state_file import StateFile
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, leader_name, sql
from toban_testing.starter import temporary_folder

UP = sys.argv[1:2] == ["up"]
SCHEDULES = 0 if UP else int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
# What applying has left behind (autovacuum, caches) ends meanwhile, seconds.
REST = 20.0
# Statements are counted by a log of PostgreSQL, which costs CPU time: after the quiet minute, for so long, seconds.
LOGGED_SECONDS = 20.0
MOST_STATEMENTS = 20
ROOT = Path(__file__).resolve().parents[2]
_STATEMENT = re.compile(r"(?:statement|execute [^:]*): (.*(?:\n\t.*)*)")


def main() -> None:
    """Start, wait, and measure."""
    with stack_of_make_up() if UP else stack_with_schedules() as (stack, admin):
        time.sleep(REST)
        url = stack.endpoints().database_url
        wal = StackWal(url)
        pids = {one.name: one.pid for one in StateFile(path=stack.home.state_file).all()}
        idle, mark = Idle(pids, leader=leader_name(stack, admin)), wal.mark()
        time.sleep(SECONDS)
        figures = idle.figures()
        written = wal.per_run(mark, wal.mark(), round(SECONDS))
        statements = logged_statements(stack, url)
        print(
            json.dumps(
                {
                    "bench": "idle_cpu",
                    "stack": "make up" if UP else "services",
                    "schedules": SCHEDULES,
                    "seconds": SECONDS,
                    **figures,
                    "postgres_writes_per_s": {name: round(value, 2) for name, value in written.items()},
                    "statements_per_s": round(sum(statements.values()) / LOGGED_SECONDS, 2),
                    "statements": {
                        text: round(count / LOGGED_SECONDS, 2)
                        for text, count in statements.most_common(MOST_STATEMENTS)
                    },
                }
            )
        )


@contextlib.contextmanager
def stack_with_schedules() -> Iterator[tuple[Stack, AdminClient]]:
    """A stack with schedules whose slots are twelve hours away, so that nothing is due, and nothing is near."""
    with whole_stack() as (stack, admin):
        admin.apply(job("bench-true", ["/bin/true"]))
        far = datetime.now(UTC) + timedelta(hours=12)
        for batch in schedules(SCHEDULES, job="bench-true", daily_at=f"{far:%H:%M}"):
            admin.apply(*batch, timeout=120.0)
        yield stack, admin


@contextlib.contextmanager
def stack_of_make_up() -> Iterator[tuple[Stack, AdminClient]]:
    """What `make up` of this clone starts, in a folder of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TOBAN_", "SCHEDULER_"))}
    with temporary_folder("toban-bench-") as folder:
        environment = {**clean, "TOBAN_HOME": str(folder)}

        def call(word: str) -> None:
            command = [sys.executable, "-m", "toban_stack", word]
            subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)

        try:
            call("up")
            stack = Stack(home=folder, environment={})
            sql(stack, "UPDATE scheduler.schedules SET enabled = false")
            with admin_of(stack) as admin:
                admin.until(lambda: not sql(stack, "SELECT 1 FROM scheduler.runs_live"), of="the end of all runs")
                yield stack, admin
        finally:
            call("down")


def logged_statements(stack: Stack, url: str) -> Counter[str]:
    """The statements of LOGGED_SECONDS, by the beginning of their text; those of this program are left out."""
    log = Path(stack.processes()["postgres"].log)
    with psycopg.connect(url, autocommit=True, application_name="bench") as connection:
        connection.execute("SET log_statement = 'none'")
        size = log.stat().st_size
        connection.execute("ALTER SYSTEM SET log_statement = 'all'")
        connection.execute("SELECT pg_reload_conf()")
        time.sleep(LOGGED_SECONDS)
        connection.execute("ALTER SYSTEM RESET log_statement")
        connection.execute("SELECT pg_reload_conf()")
    with log.open(errors="replace") as lines:
        lines.seek(size)
        return Counter(" ".join(found[1].split())[:80] for found in _STATEMENT.finditer(lines.read()))


if __name__ == "__main__":
    main()
