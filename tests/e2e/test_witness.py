"""kill -9 of an executor that nobody starts again: its guards' witness attests its death, so its runs do not wait for the lease."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.process_tree import children, start_time
from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.run_recorder import by_run, recorder_job
from toban_testing.stack_fixtures import admin_of, executor_name, running_stack, sql

pytestmark = [pytest.mark.e2e, pytest.mark.long]
ATTESTED = "attested: its witness found its processes gone"
SUCCESSOR = "attested: its successor found its processes gone"
CLOCK = SystemClock()


def row_of(stack: Stack, worker_id: int) -> dict[str, Any]:
    """How the row of an executor was closed."""
    statement = "SELECT state, off_reason FROM scheduler.executors WHERE worker_id = %(id)s"
    return sql(stack, statement, id=worker_id)[0]


def start_held(
    stack: Stack, admin: AdminClient, record: Path, *, count: int, seconds: float
) -> tuple[int, set[int], str]:
    """Runs of a job on both executors: one of these, its runs, and the name of its process."""
    record.mkdir(exist_ok=True)
    admin.apply(recorder_job("steady", record, seconds=seconds))
    ids = admin.start("steady", count=count)
    admin.until(lambda: len(by_run(record)) == count, of="all runs started")
    worker = admin.run(ids[0]).worker_id
    held = {run for run in ids if admin.run(run).worker_id == worker}
    return worker, held, executor_name(stack, admin, worker)


def until_elsewhere(admin: AdminClient, runs: set[int], worker: int, seconds: float) -> None:
    def moved() -> bool:
        found = [admin.run(run) for run in runs]
        return all(run.state == "RUNNING" and run.worker_id != worker for run in found)

    admin.until(moved, seconds=seconds, of="its runs run elsewhere")


def test_runs_restart_elsewhere_without_a_wait_for_the_lease(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        worker, held, name = start_held(stack, admin, record, count=8, seconds=30)
        begun = CLOCK.monotonic()
        stack.kill(name, signal.SIGKILL)
        until_elsewhere(admin, held, worker, seconds=60)
        sys.stderr.write(f"executor death to {len(held)} runs RUNNING elsewhere: {CLOCK.monotonic() - begun:.2f} s\n")
        assert row_of(stack, worker) == {"state": "off", "off_reason": ATTESTED}
        for run in held:
            assert admin.run(run).lost_count == 1
            assert [mark.what for mark in by_run(record)[run]] == ["start", "start"]


def test_a_job_that_had_ended_is_not_repeated(tmp_path: Path) -> None:
    """The executor is stopped when its job ends, so that only the guard has the exit code."""
    record, go = tmp_path / "record", tmp_path / "go"
    record.mkdir()
    step = {
        "id": "main",
        "type": "command",
        "argv": ["sh", "-c", f"echo $$ >> {record}/pids; until [ -e {go} ]; do sleep 0.02; done"],
    }
    job = {
        "apiVersion": "toban/v1",
        "kind": "Job",
        "metadata": {"name": "waits"},
        "spec": {"steps": [step], "allow_shell": True},
    }
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        admin.apply(job)
        [run] = admin.start("waits")
        pids = record / "pids"
        admin.until(lambda: pids.exists() and pids.read_text().endswith("\n"), of="the job runs")
        worker = admin.until(lambda: admin.run(run).worker_id, of="its executor is known")
        name = executor_name(stack, admin, worker)
        stack.kill(name, signal.SIGSTOP)
        go.touch()
        admin.until(lambda: not start_time(int(pids.read_text())), of="the job has ended")
        stack.kill(name, signal.SIGKILL)
        ended = admin.until_ended(run)
        assert (ended.state, ended.attempt, ended.lost_count) == ("SUCCEEDED", 1, 0)
        admin.until(lambda: row_of(stack, worker)["state"] == "off", of="its row is closed")
        assert row_of(stack, worker)["off_reason"] == ATTESTED
        assert len(pids.read_text().split()) == 1, "it ran once"


def test_nothing_is_attested_when_a_guard_was_killed_too(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        worker, held, name = start_held(stack, admin, record, count=4, seconds=30)
        [supervisor] = children(stack.processes()[name].pid)
        stack.kill(name, signal.SIGSTOP)
        os.kill(children(supervisor)[0], signal.SIGKILL)
        stack.kill(name, signal.SIGKILL)
        until_elsewhere(admin, held, worker, seconds=60)
        assert row_of(stack, worker)["off_reason"].startswith("no grant for")
        assert not [mark for marks in by_run(record).values() for mark in marks if mark.what == "overlap"]


def test_witness_and_successor_at_once(tmp_path: Path) -> None:
    """Either attests, once; no run is doubled, and none waits for the lease."""
    record = tmp_path / "record"
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        worker, held, name = start_held(stack, admin, record, count=8, seconds=6)
        stack.kill(name, signal.SIGKILL)
        stack.start(name)
        ended = [admin.until_ended(run) for run in held]
        assert {(run.state, run.lost_count) for run in ended} == {("SUCCEEDED", 1)}
        assert row_of(stack, worker)["off_reason"] in (ATTESTED, SUCCESSOR)
        for run in held:
            assert [mark.what for mark in by_run(record)[run]] == ["start", "start", "end"]
