"""The commands of docs/backup.md: the database is dumped under load, lost, and restored into a new server; Toban goes on with what it knew."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from toban_domain.epoch import Epoch
from toban_stack.servers.binaries import find_postgres
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.rolling_load import lines_of, restart, stop_in_order, talking_job
from toban_testing.run_recorder import by_run, interval_schedule, marks
from toban_testing.stack_fixtures import admin_of, running_stack, sql

pytestmark = pytest.mark.e2e
DOCUMENT = Path(__file__).parents[2] / "docs" / "backup.md"


def documented(heading: str) -> str:
    """The commands below a heading of docs/backup.md."""
    found = re.search(
        rf"^#+ {re.escape(heading)}$.*?^```bash\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found, f"no commands under {heading!r}"
    return found[1]


def shell(stack: Stack, script: str, folder: Path) -> None:
    """Runs documented commands as an operator would: PostgreSQL's tools on PATH, its address in the PG* variables."""
    url = urlsplit(stack.endpoints().database_url)
    major = int(sql(stack, "SELECT current_setting('server_version_num')::int / 10000 AS v")[0]["v"])
    environment = {
        "PATH": f"{find_postgres(major).folder}:{os.environ['PATH']}",
        "PGHOST": str(url.hostname),
        "PGPORT": str(url.port),
        "PGUSER": str(url.username),
        "PGPASSWORD": str(url.password),
        "PGDATABASE": url.path.lstrip("/"),
        "BACKUP": str(folder),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def begin(admin: AdminClient, record: Path) -> None:
    record.mkdir()
    admin.apply(
        talking_job("tick", record, seconds=0.1, concurrency={"policy": "allow"}),
        *(interval_schedule(f"tick-{number}", "tick", seconds=1) for number in range(4)),
    )
    ticks(admin, record, 12)


def ticks(admin: AdminClient, record: Path, count: int) -> None:
    goal = len(by_run(record)) + count
    admin.until(lambda: len(by_run(record)) >= goal, seconds=60, of=f"{count} more runs")


def history(stack: Stack) -> Mapping[int, dict[str, Any]]:
    """Every run that has ended."""
    return {
        row["id"]: row for row in sql(stack, "SELECT id, schedule_id, slot, token, state FROM scheduler.runs_history")
    }


def lose_the_database(stack: Stack) -> None:
    """As if its disk were gone: an empty server with another system identifier takes its place."""
    stack.kill("postgres", signal.SIGKILL)
    shutil.rmtree(stack.home.data / "postgres")
    stack.start("postgres")


def test_a_restored_database_goes_on_with_a_higher_epoch(tmp_path: Path) -> None:
    record, backup = tmp_path / "record", tmp_path / "backup"
    backup.mkdir()
    with running_stack(tmp_path / "home", coordinators=1, executors=1, slots=4) as stack:
        with admin_of(stack) as admin:
            begin(admin, record)
            shell(stack, documented("Take one"), backup)
            # What happens now is lost with the database; the executor remembers the epoch of a leader that no backup knows.
            restart(stack, "coordinator-1")
            ticks(admin, record, 12)
            lost = admin.cluster().epoch
        for name in ("coordinator-1", "executor-1", "log-archiver-1"):
            assert stop_in_order(stack, name) == 0
        before = marks(record)
        lose_the_database(stack)
        shell(stack, documented("Restore it"), backup)
        known = history(stack)
        assert known
        [leader] = sql(
            stack, "SELECT epoch, settled_system_id, scheduler.current_system_id() AS here FROM scheduler.leader"
        )
        assert leader["epoch"] < lost and leader["settled_system_id"] != leader["here"]
        stack.up()
        with admin_of(stack) as admin:
            ticks_again(admin, record, len(before))
            after = admin.cluster().epoch
            assert after > lost, "above every epoch that anybody has heard of"
            assert Epoch.unpack(after).generation > Epoch.unpack(lost).generation, (
                "PostgreSQL went back: a generation more"
            )
            check_known(stack, known, before, marks(record))
            for run_id in sorted(known)[:8]:
                admin.until(
                    lambda run_id=run_id: admin.log(run_id) == lines_of(run_id), seconds=15, of="the lines from before"
                )  # type: ignore[misc]


def ticks_again(admin: AdminClient, record: Path, before: int) -> None:
    admin.until(lambda: len(marks(record)) >= before + 24, seconds=90, of="slots are fired again")


def check_known(stack: Stack, known: Mapping[int, dict[str, Any]], before: list[Any], after: list[Any]) -> None:
    """What the ledger knew as done is as it was, and was not started again; no slot has two runs."""
    assert {key: row for key, row in history(stack).items() if key in known} == known
    old = {row["token"] for row in known.values()}
    assert not [mark for mark in after[len(before) :] if mark.token in old]
    doubled = sql(
        stack,
        "SELECT schedule_id, slot FROM scheduler.job_runs WHERE slot IS NOT NULL GROUP BY schedule_id, slot HAVING count(*) > 1",
    )
    assert doubled == []
