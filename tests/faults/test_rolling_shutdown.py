"""Services are told to stop under load: what runs ends or is handed on at once, and everybody can see that it was a stop and no loss."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from toban_domain.errors import TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import SystemClock
from toban_stack import certs
from toban_stack.stack import Stack
from toban_testing.rolling_load import (
    SCHEDULES,
    begin_ticks,
    check_logs,
    check_once,
    check_slots,
    end_ticks,
    lines_of,
    restart,
    stop_in_order,
    talking_job,
    wait_for_ticks,
)
from toban_testing.run_recorder import by_run
from toban_testing.stack_fixtures import admin_of, executor_name, running_stack, sql
from toban_transport.replica_client import Fleet
from toban_transport.tls import TlsFiles

pytestmark = pytest.mark.e2e
RESTARTS = 8


@contextmanager
def on_demand(stack: Stack, job: str) -> Iterator[list[int]]:
    """Starts runs of `job` all the time as admin-web would, over connections that live on; no call may fail. The ids so far."""
    files = TlsFiles(stack.home.tls / "admin-cli")
    fleet = Fleet(service="coordinator", addresses=stack.coordinators, tls=files, trust_domain=certs.TRUST_DOMAIN)
    ids: list[int] = []
    errors: list[str] = []
    over = threading.Event()
    request = pb.StartRunsRequest(runs=[pb.StartRunRequest(job=job)] * 4)

    def work() -> None:
        while not over.wait(0.2):
            try:
                answer = fleet.call(lambda channel: rpc.JobControlStub(channel).StartRuns, request, timeout=30)
                ids.extend(run.run_id for run in answer.runs)
            except TobanError as error:
                errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield ids
    finally:
        over.set()
        thread.join()
        fleet.close()
    assert errors == []


def test_executors_stop_at_any_moment_of_the_second(tmp_path: Path) -> None:
    """No run is sent to an executor that is about to go: each one starts once, wherever in the second the stop comes."""
    record = tmp_path / "record"
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        begin_ticks(admin, record)
        pause = threading.Event()
        for turn in range(RESTARTS):
            now = SystemClock().wall().timestamp()
            pause.wait((turn / RESTARTS - now) % 1.0)
            assert restart(stack, f"executor-{1 + turn % 2}") == 0
            wait_for_ticks(admin, record, 2 * SCHEDULES, seconds=30)
        runs = end_ticks(stack, admin)
        check_slots(runs)
        check_once(runs, record)
        check_logs(admin, [run["id"] for run in runs])
        gone = sql(stack, "SELECT off_reason FROM scheduler.executors WHERE state = 'off'")
        assert [row["off_reason"] for row in gone] == ["attested: it was stopped in order"] * RESTARTS


@pytest.mark.seed(182)
def test_coordinators_stop_while_runs_are_started(tmp_path: Path) -> None:
    """A call that was answered is kept, a call that was not is asked of another coordinator; nothing is started twice."""
    record = tmp_path / "record"
    record.mkdir()
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        admin.apply(talking_job("quick", record, seconds=0.05))
        with on_demand(stack, "quick") as ids:
            for turn in range(6):
                before = len(ids)
                assert restart(stack, f"coordinator-{1 + turn % 2}") == 0
                admin.until(lambda before=before: len(ids) > before + 20, seconds=30, of="runs are started")  # type: ignore[misc]
        for run_id in ids:
            admin.until_ended(run_id)
        rows = sql(stack, "SELECT * FROM scheduler.job_runs WHERE job_name = 'quick'")
        assert {row["id"] for row in rows} == set(ids)
        check_once(rows, record)
        check_logs(admin, ids)
        status = sql(stack, "SELECT status, count(*) AS n FROM scheduler.coordinators GROUP BY status")
        assert {row["status"]: row["n"] for row in status} == {"ok": 2, "stopped": 6}


def test_a_job_that_outlives_the_grace_goes_on_elsewhere_at_once(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.mkdir()
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        admin.apply(talking_job("long", record, seconds=60, cancel={"supported": True, "grace_seconds": 1}))
        [run_id] = admin.start("long")
        run = admin.until(lambda: r if (r := admin.run(run_id)).state == "RUNNING" else None, seconds=15, of="it runs")
        [held] = sql(stack, "SELECT assigned_worker_id AS w FROM scheduler.runs_live WHERE id = %(id)s", id=run_id)
        name = executor_name(stack, admin, held["w"])
        assert stop_in_order(stack, name) == 0
        again = admin.until(
            lambda: r if (r := admin.run(run_id)).state == "RUNNING" and r.token > run.token else None,
            seconds=2,
            of="it runs elsewhere, without a wait for a lease",
        )
        assert again.lost_count == 1
        said = sql(stack, "SELECT message FROM scheduler.job_events WHERE run_id = %(id)s", id=run_id)
        assert "forced_shutdown" in {row["message"] for row in said}
        stopped = (
            "SELECT 1 FROM scheduler.executors WHERE state = 'off' AND off_reason = 'attested: it was stopped in order'"
        )
        admin.until(lambda: sql(stack, stopped), seconds=2, of="the executor's row says that it was stopped")
        admin.until(lambda: admin.log(run_id)[: len(lines_of(run_id))] == lines_of(run_id), seconds=10, of="its lines")
        starts = [mark for mark in by_run(record)[run_id] if mark.what == "start"]
        assert len({mark.token for mark in starts}) == 2
        assert not [mark for mark in by_run(record)[run_id] if mark.what == "overlap"]
