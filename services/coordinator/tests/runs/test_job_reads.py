"""Lists, single things, the watch of a run and the merging of reports."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from toban_coordinator.app.runs.commit_reports import Committed
from toban_coordinator.app.runs.report_queue import ReportQueue
from toban_coordinator.decide.runs.report import Answer, Report
from toban_coordinator.server.job_reader import JobReader
from toban_coordinator.store.cluster import read_models
from toban_coordinator.store.cluster.settings import SettingsCache
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, ErrorLine, OutcomeKind, Reason
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import Page
from toban_runtime.clock import SystemClock
from toban_store.tx import autocommit


@pytest.fixture
def reader(world: Any) -> JobReader:
    return world.reader  # type: ignore[no-any-return]


@pytest.mark.seed(20)
async def test_pages_go_over_live_and_history(world: Any, make: Any, reader: JobReader) -> None:
    await world.executor(slots=10)
    await world.apply(make.job(), make.job("other"), make.schedule())
    runs = await world.start(count=7)
    [other] = await world.start("other")
    await world.turn("assign")
    for run in (runs[1], runs[4], other):
        await world.report(world.key(run), make.outcome())
    found, cursor = [], ""
    while True:
        page = await reader.ListRuns(pb.ListRunsRequest(page=Page(limit=3, cursor=cursor)), None)
        found += [run.id for run in page.runs]
        cursor = page.next_cursor
        if not cursor:
            break
    assert found == sorted([*runs, other], reverse=True)
    of_job = await reader.ListRuns(pb.ListRunsRequest(job="hello", states=["SUCCEEDED"]), None)
    assert [run.id for run in of_job.runs] == [runs[4], runs[1]]
    await world.steady()
    await world.turn("fire")
    of_schedule = await reader.ListRuns(pb.ListRunsRequest(schedule="often", include_ahead=True), None)
    assert len(of_schedule.runs) == 3 and {run.schedule for run in of_schedule.runs} == {"often"}
    for bad in (
        pb.ListRunsRequest(page=Page(cursor="x")),
        pb.ListRunsRequest(states=["GONE"]),
        pb.ListRunsRequest(page=Page(limit=-1)),
    ):
        with pytest.raises(TobanError) as caught:
            await reader.ListRuns(bad, None)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_runs_that_may_have_written_within_a_span_of_time(world: Any, make: Any, reader: JobReader) -> None:
    await world.executor(slots=10)
    await world.apply(make.job())
    early, running = await world.start(count=2)
    await world.turn("assign")
    await world.report(world.key(early), make.outcome())
    (row,) = await world.sql("SELECT clock_timestamp() AS between")
    [late] = await world.start()
    await world.turn("assign")
    await world.report(world.key(late), make.outcome())

    async def active(**at: datetime) -> list[int]:
        request = pb.ListRunsRequest(job="hello")
        for name, moment in at.items():
            getattr(request, f"active_{name}").FromDatetime(moment)
        return [run.id for run in (await reader.ListRuns(request, None)).runs]

    assert await active() == [late, running, early]
    assert await active(**{"from": row["between"]}) == [late, running]
    assert await active(until=row["between"]) == [running, early]
    assert await active(**{"from": row["between"], "until": row["between"]}) == [running]
    any_job = await reader.ListRuns(pb.ListRunsRequest(active_from=row["between"]), None)
    assert [run.id for run in any_job.runs] == [late, running], "also without a job"


async def test_what_is_made_ahead_is_not_the_last_run(world: Any, make: Any, reader: JobReader) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule(interval_seconds=10))
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() + interval '10 s'")
    await world.turn("fire")

    async def shown(**wanted: Any) -> tuple[int, bool, bool]:
        runs = (await reader.ListRuns(pb.ListRunsRequest(**wanted), None)).runs
        job = (await reader.ListJobs(pb.ListJobsRequest(), None)).jobs[0]
        return len(runs), job.HasField("last_run"), job.schedules[0].HasField("last_run_at")

    assert await shown() == (0, False, False)
    assert [await shown(job="hello"), await shown(schedule="often")] == [(0, False, False)] * 2
    assert (await shown(include_ahead=True))[0] == (await shown(job="hello", include_ahead=True))[0] > 0
    first = "(SELECT id FROM scheduler.runs_live ORDER BY id LIMIT 1)"
    await world.sql(
        f"WITH r AS (UPDATE scheduler.runs_live SET scheduled_for = now(), slot = now() WHERE id = {first} RETURNING id) "
        "UPDATE scheduler.run_slots s SET slot = now() FROM r WHERE s.run_id = r.id"
    )
    assert await shown() == (1, True, True)
    assert await shown(schedule="often", states=["PENDING"]) == (1, True, True)
    [soon] = await world.sql("SELECT min(slot) AS slot FROM scheduler.run_slots WHERE slot > now()")
    [schedule] = (await reader.ListSchedules(pb.ListSchedulesRequest(), None)).schedules
    assert schedule.next_run_at.ToDatetime(UTC) == soon["slot"]


@pytest.mark.seed(53, 135)
async def test_one_run_one_job_the_cluster(world: Any, make: Any, reader: JobReader) -> None:
    await world.executor()
    hello = make.job()
    hello["metadata"]["description"] = "says hello"
    await world.apply(hello, make.schedule())
    [run] = await world.start()
    await world.turn("assign")
    await world.report(world.key(run), make.outcome(last_line="hello"))
    shown = await reader.GetRun(pb.GetRunRequest(id=run), None)
    assert (shown.state, shown.last_line, shown.executor, shown.exit_code) == ("SUCCEEDED", "hello", "e1", 0)
    assert not shown.attempts[0].error_lines
    assert [a.state for a in shown.attempts] == ["SUCCEEDED"] and shown.events[0].type == "created"
    job = await reader.GetJob(pb.GetJobRequest(name="hello"), None)
    assert (job.description, job.last_run.id, job.schedules[0].rule) == ("says hello", run, "every 10 seconds")
    assert [j.name for j in (await reader.ListJobs(pb.ListJobsRequest(), None)).jobs] == ["hello"]
    assert [s.job for s in (await reader.ListSchedules(pb.ListSchedulesRequest(), None)).schedules] == ["hello"]
    with pytest.raises(TobanError) as caught:
        await reader.GetJob(pb.GetJobRequest(name="hell"), None)
    assert caught.value.code is ErrorCode.JOB_NOT_FOUND and "hello" in caught.value.message
    [executor] = (await reader.ListExecutors(pb.ListExecutorsRequest(), None)).executors
    assert (executor.running, executor.state, executor.slots) == (0, "on", 4)
    cluster = await reader.GetCluster(pb.GetClusterRequest(), None)
    assert cluster.epoch == world.term.epoch and cluster.settled and json.loads(cluster.health_json) == {"status": "ok"}


async def test_a_failed_run_says_why(world: Any, make: Any, reader: JobReader) -> None:
    await world.executor()
    await world.apply(make.job())
    [broken] = await world.start()
    await world.turn("assign")
    lines = (ErrorLine(7, "Traceback"), ErrorLine(9, "ValueError: no"))
    bad = make.outcome(
        kind=OutcomeKind.FAILED,
        reason=Reason.EXIT_CODE,
        exit_code=1,
        error_summary="exit code 1",
        last_line="ValueError: no",
        error_lines=lines,
    )
    await world.report(world.key(broken), bad)
    failed = await reader.GetRun(pb.GetRunRequest(id=broken), None)
    found = [(line.seq, line.text) for line in failed.attempts[0].error_lines]
    assert found == [(7, "Traceback"), (9, "ValueError: no")]
    told = (await reader.ExplainRun(pb.GetRunRequest(id=broken), None)).reasons
    assert told[:2] == ["it failed on e1: exit code 1", "the last line of its output: ValueError: no"]
    assert (await reader.GetOverview(pb.GetOverviewRequest(), None)).failures[0].last_line == "ValueError: no"


async def test_runs_on_executors_count_as_running_from_their_dispatch_on(
    world: Any, make: Any, reader: JobReader
) -> None:
    """Confirmed or not: an executor may be running them. Runs that are only placed ahead are neither running nor waiting."""

    async def counted() -> tuple[int, int, int]:
        cluster = await reader.GetCluster(pb.GetClusterRequest(), None)
        return cluster.pending, cluster.running, sum(executor.running for executor in cluster.executors)

    await world.executor()
    await world.apply(make.job(), make.schedule())
    await world.steady()
    await world.turn("fire", "assign")
    assert {row["state"] for row in await world.sql("SELECT state::text AS state FROM scheduler.runs_live")} == {
        "ASSIGNED"
    }, "placed ahead"
    assert await counted() == (0, 0, 0)
    [run] = await world.start()
    assert await counted() == (1, 0, 0)
    await world.turn("assign")
    assert await world.state(run) == "ASSIGNED"
    assert await counted() == (0, 1, 1)
    await world.report(world.key(run), world.now())
    assert await world.state(run) == "RUNNING"
    assert await counted() == (0, 1, 1)
    await world.cancel(run)
    assert await world.state(run) == "CANCEL_REQUESTED"
    assert await counted() == (0, 1, 1)
    await world.report(world.key(run), make.outcome())
    assert await counted() == (0, 0, 0)


async def test_a_watch_ends_with_the_run(world: Any, make: Any, reader: JobReader) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    seen: list[str] = []
    first = asyncio.Event()

    async def watch() -> None:
        async for shown in reader.WatchRun(pb.GetRunRequest(id=run), None):
            seen.append(shown.state)
            first.set()

    task = asyncio.create_task(watch())
    await first.wait()
    await world.turn("assign")
    await world.report(world.key(run), make.outcome())
    await task
    assert seen[0] == "PENDING" and seen[-1] == "SUCCEEDED"


@pytest.mark.seed(144, 152)
async def test_every_change_says_from_where_to_where_why_and_who_asked(
    world: Any, make: Any, reader: JobReader
) -> None:
    await world.executor()
    await world.apply(make.job(retry={"max_retries": 1}))
    [run] = await world.start()
    await world.turn("assign")
    await world.report(world.key(run), world.now())
    await world.report(world.key(run), make.outcome("FAILED", exit_code=3, error_summary="exit 3"))
    await world.turn("assign")
    await world.report(world.key(run), world.now())
    await world.cancel(run)
    await world.report(world.key(run), make.outcome("CANCELED"))
    first = world.orders.starts[0][1].key
    assert await world.report(first, make.outcome("SUCCEEDED")) == "orphan_result"
    shown = await reader.GetRun(pb.GetRunRequest(id=run), None)
    told = [(one.type, one.from_state, one.to_state) for one in shown.events]
    assert told == [
        ("created", "", "PENDING"),
        ("dispatched", "PENDING", "ASSIGNED"),
        ("started", "ASSIGNED", "RUNNING"),
        ("retry", "RUNNING", "PENDING"),
        ("dispatched", "PENDING", "ASSIGNED"),
        ("started", "ASSIGNED", "RUNNING"),
        ("cancel_requested", "RUNNING", "CANCEL_REQUESTED"),
        ("canceled", "CANCEL_REQUESTED", "CANCELED"),
        ("orphan_result", "", ""),
    ]
    by_type = {one.type: one for one in shown.events}
    assert (by_type["created"].actor, by_type["cancel_requested"].actor) == ("admin-cli", "admin-cli")
    assert by_type["cancel_requested"].message == "test"
    assert by_type["retry"].message == "attempt 1 of 2 FAILED, next in 0 s"
    late = f"attempt {first.token} ended SUCCEEDED after its run had gone on: kept, not applied"
    assert by_type["orphan_result"].message == late


async def test_reports_of_one_executor_are_merged(world: Any, make: Any) -> None:
    incarnation = await world.executor(slots=50)
    await world.apply(make.job())
    runs = await world.start(count=30)
    await world.turn("assign")
    reports = ReportQueue(pool=world.pool)
    outcome = make.outcome()
    keys = [world.key(run) for run in runs]
    answers = await asyncio.gather(*(reports.commit(incarnation, [Report(key, 1, outcome)]) for key in keys))
    assert answers == [[Committed(Answer.ACCEPTED)]] * 30
    long = tuple(ErrorLine(number, "\0" + "x" * 300) for number in range(1, 9))
    other = make.outcome(error_summary="nul \0 in it", error_lines=long)
    again = await reports.commit(incarnation, [Report(key, 1, other) for key in keys[:2]])
    assert again == [Committed(Answer.ORPHAN_RESULT)] * 2
    [kept, _] = await world.sql("SELECT outcome -> 'error_lines' AS lines FROM scheduler.orphan_results")
    assert kept["lines"] == [{"seq": number, "text": "�" + "x" * 199} for number in range(4, 9)], "no more is kept"
    stranger = await reports.commit(incarnation, [Report(AttemptKey(999, 1), 1, outcome)])
    assert stranger == [Committed(Answer.NOT_HELD)]


async def test_settings_are_cached_and_checked(world: Any) -> None:
    cache = SettingsCache(pool=world.pool, clock=SystemClock())
    assert (await cache.get())["assign_ahead_seconds"] == 30.0
    await world.sql(
        "INSERT INTO scheduler.settings (name, value) VALUES ('assign_ahead_seconds', '5'), ('fire_batch_size', '\"x\"')"
    )
    assert (await cache.get())["assign_ahead_seconds"] == 30.0
    fresh = await SettingsCache(pool=world.pool, clock=SystemClock()).get()
    assert fresh["assign_ahead_seconds"] == 5.0 and fresh.whole("fire_batch_size") == 500


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("GetJob", pb.GetJobRequest(name="\0")),
        ("ListJobs", pb.ListJobsRequest(page=Page(cursor="a\0"))),
        ("ListSchedules", pb.ListSchedulesRequest(job="\0")),
        ("ListSchedules", pb.ListSchedulesRequest(names=["\0"])),
        ("ListSchedules", pb.ListSchedulesRequest(names=[f"s{n}" for n in range(101)])),
        ("GetSchedule", pb.GetScheduleRequest(name="\0")),
        ("ListFires", pb.ListFiresRequest(schedule="\0")),
        ("ListRuns", pb.ListRunsRequest(job="\0")),
        ("ListRuns", pb.ListRunsRequest(page=Page(cursor="9" * 5000))),
        ("ListTriggers", pb.ListTriggersRequest(name="\0")),
    ],
)
async def test_a_nul_or_a_huge_cursor_is_the_callers_mistake(reader: JobReader, method: str, asked: Any) -> None:
    with pytest.raises(TobanError) as caught:
        await getattr(reader, method)(asked, None)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_of_very_many_executors_the_newest_are_shown_and_those_that_are_on(world: Any) -> None:
    """Each start of one leaves a row."""
    old = await world.executor(1)
    await world.sql(
        "INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port, key_hash, lease_ms, slots,"
        " state, off_at) SELECT gen_random_uuid(), nextval('scheduler.worker_id_seq'), 'x', 'n', 'b', 1, 'h', 1, '', 10000, 1, 'off', now()"
        "   FROM generate_series(1, 1100)"
    )
    new = await world.executor(2)
    async with autocommit(world.pool) as t:
        shown = await read_models.executors(t, include_off=True)
        assert [row["incarnation"] for row in await read_models.executors(t, include_off=False)] == [old, new]
    workers = [row["worker_id"] for row in shown]
    assert len(shown) == 1000 and workers == sorted(workers)
    assert (shown[0]["incarnation"], shown[-1]["incarnation"]) == (old, new)


async def test_a_run_that_waits_says_why(world: Any, make: Any, reader: JobReader) -> None:
    await world.apply(make.job(), make.job("labelled", selector={"labels": {"gpu": "a100"}}))
    await world.sql("UPDATE scheduler.leader_beat SET beaten_at = now()")
    await world.sql(
        "UPDATE scheduler.leader SET settled_system_id = scheduler.current_system_id(), settled_timeline = scheduler.current_timeline()"
    )
    [first] = await world.start()

    async def why(run: int) -> str:
        return (await reader.GetRun(pb.GetRunRequest(id=run), None)).waiting

    assert await why(first) == "no executor is registered; start one"
    await world.executor(slots=1)
    await world.turn("assign")
    assert await why(first) == ""
    [second], [labelled] = await world.start(), await world.start("labelled")
    await world.turn("assign")
    assert await why(second) == "all slots of the executors that take work are busy (1 of 1 on 1)"
    assert "gpu=a100" in await why(labelled)
    world.orders.refuse = lambda order: ("DISK_FULL", "no room")
    await world.report(world.key(first), make.outcome())
    await world.turn("assign", "dispatch")
    await world.sql("UPDATE scheduler.runs_live SET not_before = NULL")
    assert "refused it" in await why(second) and "DISK_FULL: no room" in await why(second)
    await world.sql("UPDATE scheduler.leader_beat SET beaten_at = now() - interval '1 minute'")
    assert "no coordinator leads" in await why(labelled)


async def test_jobs_and_schedules_with_a_part_of_a_name(world: Any, make: Any) -> None:
    names = ["nightly-load", "load", "import"]
    await world.apply(*(make.job(name) for name in names), *(make.schedule(f"s-{name}", job=name) for name in names))

    async def found(part: str, **page: Any) -> tuple[list[str], list[str]]:
        jobs = await world.reader.ListJobs(pb.ListJobsRequest(name=part, page=Page(**page)), None)
        schedules = await world.reader.ListSchedules(pb.ListSchedulesRequest(name=part, page=Page(**page)), None)
        return [one.name for one in jobs.jobs], [one.name for one in schedules.schedules]

    assert await found("load") == await found("LOAD") == (["load", "nightly-load"], ["s-load", "s-nightly-load"])
    assert await found("load", cursor="load") == (["nightly-load"], ["s-load", "s-nightly-load"])
    assert await found("%") == await found("_") == ([], [])
    named = pb.ListSchedulesRequest(names=["s-load", "s-import", "s-gone"], name="load")
    assert [one.name for one in (await world.reader.ListSchedules(named, None)).schedules] == ["s-load"]
    assert len((await found(""))[0]) == 3
