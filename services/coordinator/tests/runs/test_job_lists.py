"""Jobs as a grid: filters, orders, and the newest runs of each."""

from typing import Any

import pytest

from toban_coordinator.server.job_reader import JobReader
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import OutcomeKind
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import Page


@pytest.fixture
def reader(world: Any) -> JobReader:
    return world.reader  # type: ignore[no-any-return]


async def names(reader: JobReader, **wanted: Any) -> list[str]:
    return [job.name for job in (await reader.ListJobs(pb.ListJobsRequest(**wanted), None)).jobs]


async def pages(reader: JobReader, **wanted: Any) -> list[str]:
    """The names on all pages of two jobs."""
    found, cursor = [], ""
    while True:
        page = await reader.ListJobs(pb.ListJobsRequest(page=Page(limit=2, cursor=cursor), **wanted), None)
        found += [job.name for job in page.jobs]
        if not (cursor := page.next_cursor):
            return found


async def test_the_newest_runs_of_each_job_live_and_finished(world: Any, make: Any, reader: JobReader) -> None:
    await world.executor(slots=10)
    await world.apply(make.job(), make.job("other"), make.job("idle"))
    first, second, third = await world.start(count=3)
    [other] = await world.start("other")
    await world.turn("assign")
    await world.report(world.key(second), make.outcome())
    jobs = (await reader.ListJobs(pb.ListJobsRequest(history=20), None)).jobs
    found = {job.name: [(run.id, run.HasField("finished_at")) for run in job.recent_runs] for job in jobs}
    assert found == {
        "hello": [(third, False), (second, True), (first, False)],
        "idle": [],
        "other": [(other, False)],
    }
    run = next(job for job in jobs if job.name == "hello").recent_runs[1]
    assert run.state == "SUCCEEDED" and run.HasField("started_at") and run.HasField("scheduled_for")
    jobs = (await reader.ListJobs(pb.ListJobsRequest(history=2, name="hell"), None)).jobs
    assert [[run.id for run in job.recent_runs] for job in jobs] == [[third, second]]
    assert not (await reader.ListJobs(pb.ListJobsRequest(), None)).jobs[0].recent_runs


async def test_jobs_in_the_order_of_their_next_runs(world: Any, make: Any, reader: JobReader) -> None:
    order = ["d", "a", "c", "b"]
    off = make.job("off")
    off["spec"]["enabled"] = False
    await world.apply(*(make.job(name) for name in order), off, make.job("none"))
    await world.apply(*(make.schedule(f"s-{name}", job=name) for name in (*order, "off")))
    for number, name in enumerate(order):
        await world.sql(
            f"UPDATE scheduler.schedules SET next_run_at = now() + interval '{number + 1} hours' WHERE name = 's-{name}'"
        )
    assert await pages(reader, sort="next_run") == [*order, "none", "off"]
    assert await pages(reader) == ["a", "b", "c", "d", "none", "off"] == await pages(reader, sort="name")
    # A row made ahead is what fires next, before what the schedule has not settled yet.
    await world.sql(
        "INSERT INTO scheduler.run_slots (schedule_id, slot, run_id) SELECT id, now() + interval '1 minute', 1 FROM scheduler.schedules"
        " WHERE name = 's-b'"
    )
    assert await pages(reader, sort="next_run") == ["b", "d", "a", "c", "none", "off"]
    jobs = (await reader.ListJobs(pb.ListJobsRequest(history=1, sort="next_run"), None)).jobs
    at = [job.next_run_at.ToNanoseconds() for job in jobs if job.HasField("next_run_at")]
    assert len(at) == 4 and at == sorted(at)


async def test_jobs_that_are_disabled_or_have_a_label(world: Any, make: Any, reader: JobReader) -> None:
    off, data = make.job("off"), make.job("data")
    off["spec"]["enabled"] = False
    for job, team in ((off, "ops"), (data, "data")):
        job["metadata"]["labels"] = {"team": team, "tier": "1"}
    await world.apply(off, data, make.job("plain"))
    assert await names(reader, disabled=True) == ["off"]
    assert await names(reader, label="team=data") == ["data"]
    assert (
        await pages(reader, label="tier=1", sort="next_run") == await pages(reader, label="tier=1") == ["data", "off"]
    )
    assert await names(reader, label="team=data", disabled=True) == await names(reader, label="team=") == []


async def test_a_job_is_failing_until_a_run_of_it_succeeds(world: Any, make: Any, reader: JobReader) -> None:
    await world.executor(slots=10)
    await world.apply(make.job(retry={"max_attempts": 1}), make.job("fine"))
    assert await names(reader, failing=True) == []

    async def end(job: str, kind: OutcomeKind) -> None:
        [run] = await world.start(job)
        await world.turn("assign")
        await world.report(world.key(run), make.outcome(kind))

    await end("fine", OutcomeKind.SUCCEEDED)
    await end("hello", OutcomeKind.FAILED)
    [started] = await world.start()
    assert await names(reader, failing=True) == ["hello"], "one that has not ended says nothing"
    await world.turn("assign")
    await world.report(world.key(started), make.outcome())
    assert await names(reader, failing=True) == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"sort": "version"},
        {"history": 21},
        {"history": -1},
        {"label": "team"},
        {"label": "=data"},
        {"sort": "next_run", "page": Page(cursor="hello")},
        {"sort": "next_run", "page": Page(cursor="2026-01-01T00:00:00 a")},
    ],
)
async def test_what_cannot_be_read_is_the_callers_mistake(reader: JobReader, wanted: Any) -> None:
    with pytest.raises(TobanError) as caught:
        await reader.ListJobs(pb.ListJobsRequest(**wanted), None)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_runs_by_their_numbers_and_by_the_beginning_of_a_name(world: Any, make: Any, reader: JobReader) -> None:
    await world.executor(slots=10)
    labelled = make.job("nightly-b")
    labelled["metadata"]["labels"] = {"team": "data"}
    await world.apply(make.job("nightly-a"), labelled, make.job("a-nightly"), make.job("nightly"))
    runs = {name: (await world.start(name))[0] for name in ("nightly-a", "nightly-b", "a-nightly", "nightly")}
    await world.turn("assign")
    await world.report(world.key(runs["nightly-a"]), make.outcome())

    async def found(**wanted: Any) -> set[str]:
        return {run.job for run in (await reader.ListRuns(pb.ListRunsRequest(**wanted), None)).runs}

    assert await found(run_ids=[runs["nightly-a"], runs["a-nightly"], 999]) == {"nightly-a", "a-nightly"}
    assert await found(run_ids=[runs["nightly-a"], runs["a-nightly"]], states=["SUCCEEDED"]) == {"nightly-a"}
    assert await found(run_ids=[999]) == set()
    assert await found(job="nightly-*") == {"nightly-a", "nightly-b"}
    assert await found(job="nightly-*", labels={"team": "data"}) == {"nightly-b"}
    assert await found(job="x*") == await found(job="a-*", labels={"team": "data"}) == set()
    assert await found(job="*") == set(runs)
    with pytest.raises(TobanError) as caught:
        await found(run_ids=range(1, 502))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
