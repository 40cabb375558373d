"""kill -9 of an executor: its jobs die with it, the runs go on elsewhere, never two live at once (I3, I6, I7)."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.process_tree import children
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.run_recorder import by_run, marks, recorder_job
from toban_testing.stack_fixtures import executor_name, sql

pytestmark = pytest.mark.e2e
RUNS = 12


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.seed(1, 8)
def test_jobs_die_with_their_executor_and_run_again_elsewhere(
    stack: Stack, admin: AdminClient, whole_afterwards: None, tmp_path: Path, at_most: Any
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    admin.apply(recorder_job("dies-with-it", record, seconds=600))
    ids = admin.start("dies-with-it", count=RUNS)
    admin.until(lambda: len(by_run(record)) == RUNS, of="all runs started")
    held = {run_id: admin.run(run_id) for run_id in ids}
    victim_worker = held[ids[0]].worker_id
    lost = {run_id for run_id, run in held.items() if run.worker_id == victim_worker}
    assert 0 < len(lost) < RUNS, "both executors have work"
    pids = [mark.pid for mark in marks(record) if mark.run_id in lost]
    assert all(alive(pid) for pid in pids)
    (record / "seconds").write_text("0.1")

    stack.kill(executor_name(stack, admin, victim_worker), signal.SIGKILL)
    admin.until(
        lambda: not any(alive(pid) for pid in pids), seconds=at_most(3), of="the jobs of the dead executor died"
    )
    for mark in marks(record):
        if mark.run_id not in lost:
            [sleep] = children(mark.pid)
            os.kill(sleep, signal.SIGTERM)

    runs = {run_id: admin.until_ended(run_id) for run_id in ids}
    assert {run.state for run in runs.values()} == {"SUCCEEDED"}
    for run_id, run in runs.items():
        if run_id in lost:
            assert run.lost_count == 1 and run.worker_id != victim_worker and run.token > held[run_id].token
            assert [mark.what for mark in by_run(record)[run_id]] == ["start", "start", "end"]
        else:
            assert run.lost_count == 0 and run.token == held[run_id].token
            assert [mark.what for mark in by_run(record)[run_id]] == ["start", "end"]
    assert not [mark for mark in marks(record) if mark.what == "overlap"]
    closed = "SELECT off_reason FROM scheduler.executors WHERE worker_id = %(id)s"
    [row] = sql(stack, closed, id=victim_worker)
    # On a busy machine the lease may end before the witness has looked.
    if at_most(0) == 0:
        assert row["off_reason"] == "attested: its witness found its processes gone", "nothing waited for its lease"
