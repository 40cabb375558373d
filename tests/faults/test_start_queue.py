"""Orders that wait at executors for a slot, while their leader or executor is killed, drained or stopped: each run starts once, or is repeated.

Usage: python -m pytest tests/faults/test_start_queue.py
"""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.rolling_load import check_once, stop_in_order
from toban_testing.run_recorder import by_run, recorder_job
from toban_testing.stack_fixtures import admin_of, leader_name, running_stack, sql

pytestmark = pytest.mark.e2e
RUNS = 400
SLOTS = 4
# Incarnations to which more runs are sent than they have slots.
WAITING = """
SELECT e.worker_id, e.node_id
  FROM scheduler.executors e JOIN scheduler.runs_live r ON r.assigned_incarnation = e.incarnation AND r.dispatched_at IS NOT NULL
 WHERE e.state = 'on'
 GROUP BY e.worker_id, e.node_id, e.slots HAVING count(*) > e.slots ORDER BY e.worker_id
"""
ENDED = "SELECT id, state, attempt, lost_count, error_summary, started_at FROM scheduler.job_runs WHERE job_name = 'short' ORDER BY id"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "home", slots=SLOTS) as one:
        yield one


def begin(stack: Stack, admin: AdminClient, record: Path) -> int:
    """A backlog of short runs; the worker id of an executor at which some of them wait."""
    record.mkdir()
    sql(stack, "INSERT INTO scheduler.settings (name, value) VALUES ('prefetch', '8')")
    admin.apply(recorder_job("short", record, seconds=0.02, max_lost=5))
    admin.start("short", count=RUNS)
    found = admin.until(lambda: sql(stack, WAITING), seconds=60, of="orders wait at an executor")
    return int(found[0]["worker_id"])


def end(stack: Stack, admin: AdminClient) -> list[dict[str, Any]]:
    admin.until(lambda: not sql(stack, "SELECT 1 FROM scheduler.runs_live LIMIT 1"), seconds=120, of="all have ended")
    runs = sql(stack, ENDED)
    assert len(runs) == RUNS
    return runs


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_waits_starts_once_when_another_coordinator_leads(
    stack: Stack, tmp_path: Path, how: signal.Signals
) -> None:
    with admin_of(stack) as admin:
        begin(stack, admin, tmp_path / "record")
        stack.kill(leader_name(stack, admin), how)
        check_once(end(stack, admin), tmp_path / "record")


def test_what_waits_at_an_executor_that_is_drained_goes_elsewhere(stack: Stack, tmp_path: Path) -> None:
    with admin_of(stack) as admin:
        worker = begin(stack, admin, tmp_path / "record")
        admin.call(rpc.OperationsStub, "DrainExecutor", pb.DrainExecutorRequest(worker_id=worker, reason="test"))
        check_once(end(stack, admin), tmp_path / "record")


def test_what_waits_at_an_executor_that_stops_goes_elsewhere(stack: Stack, tmp_path: Path) -> None:
    with admin_of(stack) as admin:
        begin(stack, admin, tmp_path / "record")
        assert stop_in_order(stack, "executor-1") == 0
        check_once(end(stack, admin), tmp_path / "record")


def test_what_waits_at_an_executor_that_is_killed_is_repeated(stack: Stack, tmp_path: Path) -> None:
    with admin_of(stack) as admin:
        begin(stack, admin, tmp_path / "record")
        stack.kill("executor-1", signal.SIGKILL)
        stack.start("executor-1")
        runs = end(stack, admin)
        marks = by_run(tmp_path / "record")
        for run in runs:
            assert run["state"] == "SUCCEEDED"
            starts = [mark for mark in marks[run["id"]] if mark.what == "start"]
            assert 1 <= len(starts) <= 1 + run["lost_count"], f"run {run['id']} was started more often than it was lost"


def test_a_cancel_of_a_run_that_waits_starts_nothing(stack: Stack, tmp_path: Path) -> None:
    with admin_of(stack) as admin:
        begin(stack, admin, tmp_path / "record")
        live = [run.id for run in admin.runs(states=("PENDING", "ASSIGNED", "RUNNING"))]
        for run_id in live:
            # It may have ended meanwhile.
            with contextlib.suppress(TobanError):
                admin.cancel(run_id)
        runs = {run["id"]: run for run in end(stack, admin)}
        marks = by_run(tmp_path / "record")
        for run_id, run in runs.items():
            whats = [mark.what for mark in marks.get(run_id, [])]
            assert run["state"] in ("SUCCEEDED", "CANCELED")
            # One that is killed may have come to its end before, or not have come to its first line.
            begun = run["started_at"] is not None
            assert whats in ([], ["start"], ["start", "end"]) if begun else whats == [], f"run {run_id}: {whats}"
