"""The job and the clients in memory: what they record, what they refuse, and what they do not have."""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import toban
from toban import errors
from toban.fencing import current_fence
from toban.testing import FakeAsyncClient, FakeClient, FakeJob

AT = datetime(2026, 11, 21, 3, tzinfo=UTC)


def work() -> None:
    """The work of docs/sdk.md."""
    job = toban.current_job()
    parts = job.payload["parts"]
    for part in range(job.checkpoint() or 0, parts):
        job.stop_if_cancelled()
        job.save_checkpoint(part + 1)
        job.progress(done=part + 1, total=parts)
    job.output({"parts": parts})


def test_a_job_in_memory_records_what_the_work_does() -> None:
    with FakeJob({"parts": 3}, checkpoint=1) as job:
        work()
        job.heartbeat()
        job.log_ref("s3://b/k")
    assert (job.saved, job.result, job.heartbeats, job.log_refs) == ([2, 3], {"parts": 3}, 1, ["s3://b/k"])
    assert [(one["done"], one["total"]) for one in job.reports] == [(2, 3), (3, 3)]


def test_it_describes_its_run_while_it_is_there() -> None:
    with FakeJob(run_id=7, attempt=2, slot=AT, deadline=AT, fence=40) as job, FakeJob(run_id=8) as inner:
        assert toban.current_job() is inner and inner.slot is None and inner.payload == {}
        seen: list[toban.Job] = []
        thread = threading.Thread(target=lambda: seen.append(toban.current_job()))
        thread.start()
        thread.join()
        assert seen == [inner] and current_fence() == 1
    assert (job.run_id, job.attempt, job.slot, job.deadline, job.fence, job.is_managed) == (7, 2, AT, AT, 40, True)
    assert not toban.current_job().is_managed
    with pytest.raises(ValueError, match="has no time zone"):
        FakeJob(slot=datetime(2026, 1, 1))  # noqa: DTZ001


def test_it_is_cancelled_by_a_check_or_by_a_person() -> None:
    with FakeJob({"parts": 9}, cancel_at_check=3) as job, pytest.raises(SystemExit) as ended:
        work()
    assert (ended.value.code, job.saved) == (toban.CANCELLED_EXIT_CODE, [1, 2])
    job = FakeJob()
    assert not job.cancelled()
    job.cancel()
    assert job.cancelled()


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda job: job.progress(101), "percentage must be a number"),
        (lambda job: job.progress(), "needs a percentage"),
        (lambda job: job.progress(done=3, total=2), "done at most total"),
        (lambda job: job.output("x" * 33_000), "the limit is 32768"),
        (lambda job: job.save_checkpoint(object()), "cannot be written as JSON"),
        (lambda job: job.output(float("nan")), "cannot be written as JSON"),
    ],
)
def test_it_refuses_what_a_run_refuses(ask: Callable[[FakeJob], object], problem: str) -> None:
    job = FakeJob()
    with pytest.raises(toban.JobError, match=problem):
        ask(job)
    assert (job.reports, job.saved, job.outputs) == ([], [], [])


def test_a_client_in_memory_ends_runs_as_it_is_told() -> None:
    client = FakeClient("invoice", "report")
    waiting = client.runs.start("invoice").run_id
    with pytest.raises(NotImplementedError, match="call end_runs"):
        client.runs.wait(waiting)
    with pytest.raises(errors.WaitTimeoutError):
        client.runs.wait(waiting, timeout=0)
    client.end_runs("invoice", "FAILED", error_summary="no paper")
    for run_id in (waiting, client.runs.start("invoice").run_id):
        with pytest.raises(errors.RunFailedError, match="no paper"):
            client.runs.wait(run_id).check()
    assert client.runs.get(client.runs.start("report").run_id).state == "PENDING"
    assert [run.job for run in client.runs.list(state="FAILED", limit=1)] == ["invoice"]
    wanted = {"job": "report", "payload": {"day": 1}, "idempotency_key": "day-1"}
    many = client.runs.start_many([wanted, {"job": "invoice"}, wanted])
    assert [(one.run_id - many[0].run_id, one.created) for one in many] == [(0, True), (1, True), (0, False)]
    assert [run.id for run in client.runs.list(job="report", idempotency_key="day-1")] == [many[0].run_id]
    with pytest.raises(errors.NotFoundError):
        client.runs.start_many([{"job": "report"}, {"job": "none"}])
    assert next(client.runs.list()).id == many[1].run_id
    with pytest.raises(ValueError, match="only: invoice, report"):
        client.end_runs("invoices")


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.apply([]),
        lambda client: client.call("GET", "/executors"),
        lambda client: list(client.runs.list(label={"team": "ops"})),
        lambda client: list(client.runs.follow(1)),
        lambda client: list(client.runs.logs(1)),
        lambda client: client.schedules.get("nightly"),
    ],
)
def test_what_is_not_in_memory_is_refused(use: Callable[[FakeClient], Any]) -> None:
    client = FakeClient("invoice")
    client.runs.start("invoice")
    with pytest.raises(NotImplementedError, match="a client in memory does not have"):
        use(client)


def test_a_client_for_event_loops_does_the_same() -> None:
    async def use() -> None:
        async with FakeAsyncClient("invoice") as client:
            run_id = (await client.runs.start("invoice", {"id": 7})).run_id
            with pytest.raises(NotImplementedError, match="call end_runs"):
                await client.runs.wait(run_id)
            client.end_runs("invoice", result=3)
            assert (await client.runs.wait(run_id)).check().result == 3
            await client.events.emit("paid", {"id": 7})
            assert [event.payload async for event in client.events.list()] == [{"id": 7}]

    asyncio.run(use())
