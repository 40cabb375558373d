"""One bad row stops nobody else: definitions that cannot be read, reports that PostgreSQL refuses, batches that take too long."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.runs.commit_reports import commit_reports
from toban_coordinator.decide.runs.report import Answer, Report
from toban_coordinator.loops.executor_leases import LeaseDeps, LeaseKeeper, Observer
from toban_coordinator.store.placement import runs_assign
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import SystemClock
from toban_store import sessions
from toban_store.errors import StoreError, TooLong
from toban_store.pool import open_pool

SLOW = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$"


async def test_a_definition_that_cannot_be_read_holds_up_no_other(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job("bad", priority=9), make.job("good"))
    bad = await world.start("bad", count=40)
    good = await world.start("good", count=2)
    await world.sql(
        "UPDATE scheduler.job_definition_versions SET spec = '{}'"
        " WHERE definition_id = (SELECT id FROM scheduler.job_definitions WHERE name = 'bad')"
    )
    await world.turn("assign", "assign", "reap", "dispatch")
    assert [await world.state(run) for run in good] == ["ASSIGNED", "ASSIGNED"]
    assert {await world.state(run) for run in bad} == {"PENDING"}


OWN = "UPDATE scheduler.job_definitions SET spec = {} WHERE name = 'bad'"
VERSION = (
    "UPDATE scheduler.job_definition_versions SET spec = {}"
    " WHERE definition_id = (SELECT id FROM scheduler.job_definitions WHERE name = 'bad')"
)


@pytest.mark.parametrize(
    ("row", "value"),
    [
        *((row, value) for row in (OWN, VERSION) for value in ("'{}'", "'null'", "spec || '{\"steps\": 5}'")),
        (OWN, 'spec || \'{"name": "other"}\''),
    ],
)
async def test_a_job_that_cannot_be_read_is_corrected_by_applying_it_again(
    world: Any, make: Any, row: str, value: str
) -> None:
    await world.executor()
    await world.apply(make.job("bad"), make.job("good"))
    await world.sql(row.format(value))
    assert await world.apply(make.job("good", priority=2)) == [("good", "updated", 2)]
    with pytest.raises(TobanError, match=r"apply that job again, or in the same call") as caught:
        await world.apply(make.schedule(job="bad"))
    assert caught.value.code is ErrorCode.MANIFEST_INVALID
    # The same manifest: the row is not what it was applied as.
    assert await world.apply(make.job("bad"), make.schedule(job="bad")) == [
        ("bad", "updated", 2),
        ("often", "created", 1),
    ]
    assert await world.apply(make.job("bad")) == [("bad", "unchanged", 2)]
    [run] = await world.start("bad")
    await world.turn("assign")
    assert await world.state(run) == "ASSIGNED"


async def test_an_outcome_stands_though_its_definition_cannot_be_had(world: Any, make: Any) -> None:
    """Only the metrics want it."""

    class Gone(DefinitionCache):
        async def find(self, *_: Any) -> dict[Any, Any]:
            raise StoreError(ErrorCode.UNAVAILABLE, "gone")

    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    world.definitions = Gone()
    assert await world.report(world.key(run), make.outcome()) is Answer.ACCEPTED
    assert await world.state(run) == "SUCCEEDED"


async def test_schedules_of_a_definition_that_cannot_be_read_say_so(world: Any, make: Any) -> None:
    await world.apply(make.job("bad"), make.job("good"), make.schedule("s1", "bad"), make.schedule("s2", "good"))
    await world.steady()
    await world.sql(
        "UPDATE scheduler.job_definition_versions SET spec = '{}'"
        " WHERE definition_id = (SELECT id FROM scheduler.job_definitions WHERE name = 'bad')"
    )
    await world.turn("fire")
    rows = await world.sql("SELECT DISTINCT job_name FROM scheduler.runs_live")
    assert [row["job_name"] for row in rows] == ["good"]
    [row] = await world.sql("SELECT fire_retry_count, last_error FROM scheduler.schedules WHERE name = 's1'")
    assert row["fire_retry_count"] == 1 and "version 1" in row["last_error"]


async def test_a_report_that_postgresql_refuses_is_alone(world: Any, make: Any) -> None:
    incarnation = await world.executor()
    await world.apply(make.job())
    runs = await world.start(count=4)
    await world.turn("assign")
    reports = [Report(world.key(run), 1, make.outcome("FAILED")) for run in runs]
    reports[2] = replace(reports[2], what=make.outcome("FAILED", exit_code=2**40))
    answers = await commit_reports(world.pool, world.definitions, incarnation, reports)
    assert [committed.answer for committed in answers] == [Answer.ACCEPTED] * 4
    rows = [await world.run(run) for run in runs]
    assert [row["state"] for row in rows] == ["FAILED"] * 4
    assert rows[1]["exit_code"] == 1 and rows[2]["exit_code"] is None
    assert "could not be stored" in rows[2]["error_summary"]


async def test_a_report_that_is_refused_in_every_form_is_answered(world: Any, make: Any) -> None:
    incarnation = await world.executor()
    await world.apply(make.job(), make.job("poison"))
    [good], [bad] = await world.start(), await world.start("poison")
    await world.turn("assign")
    await world.sql("ALTER TABLE scheduler.runs_history ADD CHECK (job_name <> 'poison')")
    reports = [Report(world.key(run), 1, make.outcome()) for run in (bad, good)]
    answers = await commit_reports(world.pool, world.definitions, incarnation, reports)
    assert [committed.answer for committed in answers] == [Answer.REFUSED, Answer.ACCEPTED]
    assert "runs_history" in answers[0].message
    assert [await world.state(run) for run in (bad, good)] == ["ASSIGNED", "SUCCEEDED"]


async def test_a_report_without_a_partition_is_not_refused(world: Any, make: Any) -> None:
    incarnation = await world.executor()
    await world.apply(make.job())
    runs = await world.start(count=3)
    await world.turn("assign")
    # As when PostgreSQL's clock is stepped beyond the partitions that were made ahead.
    for part in await world.sql(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'scheduler.runs_history'::regclass"
    ):
        await world.sql(f"DROP TABLE {part['name']}")
    reports = [Report(world.key(run), 1, make.outcome("FAILED" if run == runs[1] else "SUCCEEDED")) for run in runs]
    answers = await commit_reports(world.pool, world.definitions, incarnation, reports)
    assert [committed.answer for committed in answers] == [Answer.NOT_STORED] * 3
    assert "no partition" in answers[0].message
    assert {await world.state(run) for run in runs} == {"ASSIGNED"}
    await world.turn("prune")
    answers = await commit_reports(world.pool, world.definitions, incarnation, reports)
    assert [committed.answer for committed in answers] == [Answer.ACCEPTED] * 3


async def test_a_lost_tree_that_is_not_empty_waits_for_the_fence(world: Any, make: Any) -> None:
    incarnation = await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    lost = make.outcome("FAILED", reason="lease_lost", tree_empty=False)
    assert await world.report(world.key(run), lost) == "accepted"
    await world.turn("reap", "assign")
    assert await world.state(run) == "RUNNING"
    [attempt] = await world.sql("SELECT state, outcome FROM scheduler.job_attempts")
    assert (attempt["state"], attempt["outcome"]["tree_empty"]) == ("LOST", False)
    await world.sql(
        "UPDATE scheduler.executors SET state = 'off', off_at = now() WHERE incarnation = %(i)s", i=incarnation
    )
    await world.turn("reap")
    assert (await world.run(run))["lost_count"] == 1


NO_POISON = "ALTER TABLE scheduler.runs_live ADD CONSTRAINT no_poison CHECK (job_name <> 'poison' OR state = 'PENDING')"


async def test_a_run_that_cannot_be_placed_stops_no_other(
    world: Any, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await world.executor(slots=20)
    await world.apply(make.job(), make.job("poison", priority=9))
    bad, good = await world.start("poison", count=2), await world.start(count=5)
    await world.sql(NO_POISON)
    await world.turn("assign", "assign")
    assert {await world.state(run) for run in good} == {"ASSIGNED"}
    assert {await world.state(run) for run in bad} == {"PENDING"}
    lines = [record.getMessage() for record in caplog.records if "cannot be placed" in record.getMessage()]
    assert len(lines) == 2 and all("no_poison" in line and "'sqlstate': '23514'" in line for line in lines)
    world.loops["assign"]._work.__self__._aside._until.clear()
    await world.sql("ALTER TABLE scheduler.runs_live DROP CONSTRAINT no_poison")
    await world.turn("assign")
    assert {await world.state(run) for run in bad} == {"ASSIGNED"}


@pytest.mark.usefixtures("production_bounds")
async def test_a_run_that_alone_takes_too_long_stops_no_other(world: Any, make: Any, pg_url: str) -> None:
    quick = await open_pool(pg_url, application_name="test", min_size=1, max_size=1, statement_ms=sessions.FENCED_MS)
    assign = world.loops["assign"]._work.__self__
    assign._deps = replace(assign._deps, quick=quick)
    await world.executor(slots=20)
    await world.apply(make.job(), make.job("poison", priority=9))
    [bad], good = await world.start("poison"), await world.start(count=5)
    await world.sql(SLOW.replace("pg_sleep(0.002)", "pg_sleep(2) WHERE NEW.job_name = 'poison'"))
    await world.sql("CREATE TRIGGER slow BEFORE UPDATE ON scheduler.runs_live FOR EACH ROW EXECUTE FUNCTION slow()")
    # The batch shrinks by halves, until the slow one is alone.
    for _ in range(30):
        with suppress(TooLong):
            await world.turn("assign")
        if {await world.state(run) for run in good} == {"ASSIGNED"}:
            break
    await quick.close()
    assert {await world.state(run) for run in good} == {"ASSIGNED"}
    assert await world.state(bad) == "PENDING"


@pytest.mark.usefixtures("production_bounds")
async def test_reap_cuts_what_takes_too_long(world: Any, make: Any) -> None:
    await world.executor(slots=200)
    await world.apply(make.job())
    await world.start(count=150)
    await world.turn("assign")
    await world.sql(SLOW)
    await world.sql("CREATE TRIGGER slow BEFORE UPDATE ON scheduler.runs_live FOR EACH ROW EXECUTE FUNCTION slow()")
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    await world.turn("reap")
    rows = await world.sql("SELECT state::text AS state, count(*) AS runs FROM scheduler.runs_live GROUP BY 1")
    assert [(row["state"], row["runs"]) for row in rows] == [("PENDING", 150)]


@pytest.mark.usefixtures("production_bounds")
async def test_a_run_that_reap_cannot_move_stops_no_other(
    world: Any, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await world.executor(slots=20)
    await world.apply(make.job(), make.job("poison"), make.job("slow"))
    bad, slow, good = await world.start("poison"), await world.start("slow"), await world.start(count=9)
    await world.turn("assign")
    await world.sql(NO_POISON.replace("'PENDING'", "'ASSIGNED'"))
    await world.sql(SLOW.replace("pg_sleep(0.002)", "pg_sleep(2) WHERE NEW.job_name = 'slow'"))
    await world.sql("CREATE TRIGGER slow BEFORE UPDATE ON scheduler.runs_live FOR EACH ROW EXECUTE FUNCTION slow()")
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    await world.turn("reap", "reap")
    assert {await world.state(run) for run in good} == {"PENDING"}
    assert [await world.state(run) for run in (*bad, *slow)] == ["ASSIGNED", "ASSIGNED"]
    lines = [record.getMessage() for record in caplog.records if "cannot be moved" in record.getMessage()]
    assert {run for run in (*bad, *slow) for line in lines if f"'run_id': {run}," in line} == {*bad, *slow}


class NoFlags:
    """Redis without any detach key."""

    async def detach_flags(self, worker_ids: Any) -> dict[int, str]:
        return {}


@pytest.mark.usefixtures("production_bounds")
async def test_a_fence_that_takes_too_long_moves_fewer_runs_and_stops_no_other(world: Any, make: Any) -> None:
    full, idle = await world.executor(1, slots=200), await world.executor(2, slots=1)
    await world.sql("UPDATE scheduler.executors SET state = 'detached' WHERE incarnation = %(i)s", i=idle)
    await world.apply(make.job())
    await world.start(count=150)
    await world.turn("assign")
    await world.sql(SLOW)
    await world.sql("CREATE TRIGGER slow BEFORE UPDATE ON scheduler.runs_live FOR EACH ROW EXECUTE FUNCTION slow()")
    await world.sql("UPDATE scheduler.executors SET attested_reason = 'its machine is gone'")
    clock = SystemClock()
    deps = LeaseDeps(
        pool=world.pool,
        clock=clock,
        observer=Observer(pool=world.pool, clock=clock),
        probe=world.orders,
        members=NoFlags(),
        settings=world.settings,
        holds=lambda: True,
    )
    keeper = LeaseKeeper(deps=deps, term=world.term)
    states = "SELECT state FROM scheduler.executors WHERE incarnation = %(i)s"
    assert await keeper.run_once() == 1
    assert [(await world.sql(states, i=i))[0]["state"] for i in (full, idle)] == ["on", "off"]
    for _ in range(5):
        await keeper.run_once()
    assert [(await world.sql(states, i=i))[0]["state"] for i in (full, idle)] == ["off", "off"]
    await world.turn("reap")
    rows = await world.sql("SELECT state::text AS state, lost_count FROM scheduler.runs_live")
    assert {(row["state"], row["lost_count"]) for row in rows} == {("PENDING", 1)}


async def test_a_batch_that_takes_too_long_is_cut_until_it_fits(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same turn, which places all of them; the next turn begins with what has fitted."""
    place, sizes = runs_assign.place, []

    async def starved(t: Any, placements: Any, *more: Any) -> dict[int, str]:
        sizes.append(len(placements))
        if len(placements) > 40:
            raise TooLong(ErrorCode.DEADLINE_EXCEEDED, "a fenced transaction took longer than 400 ms: cut the work")
        return await place(t, placements, *more)

    monkeypatch.setattr(runs_assign, "place", starved)
    await world.executor(slots=400)
    await world.apply(make.job())
    await world.start(count=300)
    await world.turn("assign")
    assert len(world.orders.starts) == 300
    assert sum(size > 40 for size in sizes) <= len(sizes) / 3, "few are in vain"
    await world.start(count=40)
    sizes.clear()
    await world.turn("assign")
    assert sizes and sizes[0] < 100, "not as many as at first"


async def test_a_slow_executor_holds_up_no_other(world: Any, make: Any) -> None:
    slow, fast = await world.executor(1, slots=1), await world.executor(2, slots=1)
    world.orders.block[slow] = asyncio.Event()
    await world.apply(make.job())
    await world.start(count=3)
    await world.loops["assign"]._work()
    await world.orders.started(1)
    assert [to for to, _ in world.orders.starts] == [fast]
    await world.report(world.orders.starts[0][1].key, make.outcome())
    await world.loops["assign"]._work()
    await world.orders.started(2)
    assert [to for to, _ in world.orders.starts] == [fast, fast]
    world.orders.block[slow].set()
