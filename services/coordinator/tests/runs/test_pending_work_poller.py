"""Ticks without work: one question to PostgreSQL stands for the reads of all loops. That it never says no too often is checked with each turn
of these tests' world (`World.turn`)."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from toban_coordinator.loops.pending_work_poller import PendingWorkPoller
from toban_coordinator.loops.term_loop import TermLoop, TurnOutcome
from toban_coordinator.store import pending_work
from toban_coordinator.store.placement import runs_assign
from toban_coordinator.store.runs import runs_finish, runs_reap
from toban_store import queries
from toban_store.tx import tx
from toban_testing.clock import FakeClock

# A row that goes on; what it lacks does not matter here.
RUNNING = """
INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, state, token, timeout_seconds, started_at,
                                 assigned_incarnation, assigned_at, dispatched_at)
SELECT d.id, 1, 'hello', 'demand', now(), 'RUNNING', i, 3600, now(), %(e)s::uuid, now(), now()
  FROM generate_series(1, 3000) i CROSS JOIN scheduler.job_definitions d
"""
LOOPS = ("fire", "events", "assign", "dispatch", "reap")


async def resting(world: Any) -> list[str]:
    """The loops that would rest at a tick now."""
    return [name for name in LOOPS if await world.loops[name]._idle_turn() is not None]


async def test_each_kind_of_work_ends_the_rest_of_its_loops(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule())
    await world.steady()
    await world.turn(*LOOPS)
    while (await world.turn("fire", "assign")).moved:
        pass
    await world.sql("DELETE FROM scheduler.runs_live")
    assert await resting(world) == list(LOOPS)
    [run] = await world.start()
    assert await resting(world) == ["fire", "events", "dispatch"]
    await world.turn("assign")
    assert await resting(world) == ["fire", "events", "reap"]
    await world.finished(run)
    await world.turn("assign")
    world.sender.accepted.clear()
    assert await resting(world) == list(LOOPS)
    await world.sql("SELECT scheduler.emit_event('order.paid', '{}'::jsonb)")
    await world.sql("UPDATE scheduler.schedules SET next_run_at = %(n)s", n=world.now())
    assert await resting(world) == ["assign", "dispatch", "reap"]


async def test_changes_without_a_report_are_found(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(timeout_seconds=60))
    await world.start(count=3)
    await world.turn("assign")
    await world.sql("UPDATE scheduler.runs_live SET state = 'RUNNING', started_at = %(n)s", n=world.now())
    assert "reap" in await resting(world)
    world.time.offset = timedelta(seconds=61)
    assert "reap" not in await resting(world), "a timeout has passed"
    world.time.offset = timedelta()
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    assert "reap" not in await resting(world), "runs of an executor that is off"


async def test_a_rest_ends_when_the_next_run_is_due(world: Any, make: Any) -> None:
    """The tick alone would start it late."""
    world.settings.set(assign_ahead_seconds=0)
    await world.executor()
    await world.apply(make.job(), make.job("first", priority=-3), make.job("last", priority=7))
    await world.turn("assign")
    for job, seconds in (("hello", 60), ("first", 5.4), ("last", 30)):
        await world.start(job, scheduled_for=world.now() + timedelta(seconds=seconds))
    rest = await world.loops["assign"]._idle_turn()
    assert rest is not None and 4 < rest.next_in < 5.5
    world.time.offset = timedelta(seconds=6)
    assert await world.loops["assign"]._idle_turn() is None


@pytest.mark.parametrize("analyzed", [False, True])
async def test_the_question_reads_no_run_that_goes_on(world: Any, make: Any, analyzed: bool) -> None:
    """Whether autovacuum has come by since the runs were made or not."""
    incarnation = await world.executor()
    await world.apply(make.job())
    await world.sql(RUNNING, e=incarnation)
    if analyzed:
        await world.sql("ANALYZE scheduler.runs_live")
    statement = queries.load(pending_work.__name__).agenda
    for mode in ("force_custom_plan", "force_generic_plan"):
        async with tx(world.pool) as t:
            await t._run(f"SET LOCAL plan_cache_mode = {mode}", {})
            asked = {"now": world.now(), "until": world.now()}
            cursor = await t._run(f"EXPLAIN (ANALYZE, BUFFERS) {statement}", asked)
            plan = [row["QUERY PLAN"] for row in await cursor.fetchall()]
        read = [int(line.split(":")[1]) for line in plan if "Rows Removed by Filter" in line]
        assert sum(read) < 10, "\n".join(plan)
        # Both indexes are partial and empty here; which one is taken depends on what autovacuum has seen.
        assert any("using runs_live_orphaned" in line or "using runs_live_orders" in line for line in plan), "\n".join(
            plan
        )


WAITING = """
INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, priority)
SELECT d.id, 1, 'hello', 'demand', now() + make_interval(hours => 1, secs => i), i %% 3
  FROM generate_series(1, 3000) i CROSS JOIN scheduler.job_definitions d
"""
LOOKS = {"outlook": runs_assign, "held_by_off": runs_reap, "overdue": runs_reap}


@pytest.mark.parametrize("look", LOOKS)
async def test_a_turn_reads_no_run_that_goes_on_or_waits_for_its_time(world: Any, make: Any, look: str) -> None:
    """Thousands of runs that need nothing, a few that do."""
    gone, incarnation = await world.executor(1), await world.executor(2)
    await world.apply(make.job())
    await world.sql(RUNNING, e=incarnation)
    await world.sql(WAITING)
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now() WHERE incarnation = %(e)s", e=gone)
    await world.sql(
        "UPDATE scheduler.runs_live SET assigned_incarnation = %(e)s, started_at = now() - interval '1 day' WHERE token < 4",
        e=gone,
    )
    await world.sql("ANALYZE scheduler.runs_live")
    first = {"after_deadline": runs_reap.FIRST_PAGE.deadline, "after_id": runs_reap.FIRST_PAGE.run_id}
    asked = {"now": world.now(), "until": world.now() + timedelta(seconds=30), "limit": 200, **first}
    for mode in ("force_custom_plan", "force_generic_plan"):
        async with tx(world.pool) as t:
            await t._run(f"SET LOCAL plan_cache_mode = {mode}", {})
            statement = getattr(queries.load(LOOKS[look].__name__), look)
            [row] = await (await t._run(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", asked)).fetchall()
        assert rows_read(row["QUERY PLAN"][0]["Plan"]) < 40, row


# So many that an index in the right order costs the planner more than a bitmap and a sort.
DUE = WAITING.replace("3000", "9000").replace("now() + make_interval(hours => 1, secs => i), i %% 3", "now(), 0")


@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_read_of_due_runs_looks_at_no_more_than_it_returns(world: Any, make: Any, analyzed: bool) -> None:
    """In the first minute of a flood, too, when PostgreSQL has no statistics of these runs."""
    await world.apply(make.job())
    await world.sql(DUE)
    if analyzed:
        await world.sql("ANALYZE scheduler.runs_live")
    else:
        await world.sql("DELETE FROM pg_statistic WHERE starelid = 'scheduler.runs_live'::regclass")
        await world.sql("UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = 'scheduler.runs_live'::regclass")
    asked = {"now": world.now(), "due_from": "-infinity", "limit": 40, "blocked": "{}", "blocked_versions": "{}"}
    statement = queries.load(runs_assign.__name__).due_runs_of_one_scope
    for mode in ("force_custom_plan", "force_generic_plan"):
        async with tx(world.pool) as t:
            await t._run(f"SET LOCAL plan_cache_mode = {mode}", {})
            [row] = await (await t._run(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", asked)).fetchall()
        # The forty, and the last run of all.
        assert rows_read(row["QUERY PLAN"][0]["Plan"]) <= 41, row


async def test_the_end_of_a_run_looks_at_no_run_that_waits_for_a_slot(world: Any, make: Any) -> None:
    await world.apply(make.job())
    await world.sql(DUE)
    asked = {"moves": "[]", "ids": "{}", "notify": True}
    async with tx(world.pool) as t:
        # None of them is deferred, which an index says.
        statement = queries.load(runs_finish.__name__).finish
        await t._run("SET LOCAL plan_cache_mode = force_generic_plan", {})
        [row] = await (await t._run(f"EXPLAIN (FORMAT JSON) {statement}", asked)).fetchall()
    assert "runs_live_deferred" in str(row), row


def rows_read(plan: dict[str, Any]) -> float:
    """Rows of live runs that the scans of a plan have looked at."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) if plan.get("Relation Name") == "runs_live" else 0
    return float(own * plan["Actual Loops"]) + sum(rows_read(part) for part in plan.get("Plans", ()))


async def test_the_outlook_sees_what_comes_next(world: Any, make: Any) -> None:
    """A run ahead of its time in any priority, one that has an executor's name already, and one that waits for its next attempt."""
    await world.executor()
    await world.apply(make.job(), make.job("low", priority=-3))
    now = world.now()

    async def outlook() -> tuple[float | None, bool]:
        async with tx(world.pool) as t:
            found = await runs_assign.outlook(t, now, now + timedelta(seconds=30))
        return None if found.next_due is None else round((found.next_due - now).total_seconds()), found.unnamed

    assert await outlook() == (None, False)
    await world.start("hello", scheduled_for=now + timedelta(seconds=50))
    assert await outlook() == (50, False)
    [low] = await world.start("low", scheduled_for=now + timedelta(seconds=30))
    assert await outlook() == (30, True)
    await world.sql(
        "UPDATE scheduler.runs_live SET state = 'ASSIGNED', assigned_incarnation = %(e)s, assigned_worker_id = 1 WHERE id = %(r)s",
        e=world.incarnations[0],
        r=low,
    )
    assert await outlook() == (30, False)
    await world.start("hello", count=3)
    await world.sql("UPDATE scheduler.runs_live SET scheduled_for = %(t)s WHERE scheduled_for < now()", t=now)
    assert await outlook() == (30, False), "what is due waits for a slot"
    await world.sql(
        "UPDATE scheduler.runs_live SET not_before = %(t)s WHERE id = (SELECT max(id) FROM scheduler.runs_live)",
        t=now + timedelta(seconds=20),
    )
    assert await outlook() == (20, False)


async def test_a_question_ends_with_those_who_asked(monkeypatch: pytest.MonkeyPatch, world: Any) -> None:
    ends: list[str] = []
    asked, answer = asyncio.Event(), asyncio.Event()

    async def read(*_: Any) -> str:
        asked.set()
        try:
            await answer.wait()
        except asyncio.CancelledError:
            ends.append("canceled")
            raise
        return "agenda"

    monkeypatch.setattr(pending_work, "read", read)
    deps: Any = SimpleNamespace(pool=world.pool, server_time=world.time, settings=world.settings)
    question = PendingWorkPoller(deps=deps)
    first, second, third = (asyncio.create_task(question.ask()) for _ in range(3))
    await asyncio.wait_for(asked.wait(), 60)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not ends, "others wait for the answer"
    second.cancel()
    third.cancel()
    await asyncio.gather(second, third, return_exceptions=True)
    answer.set()
    assert await question.ask() == "agenda" and ends == ["canceled"]


class Bench:
    """A loop of a term under a fake clock; `turns` says of each turn whether it was one in full."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.turns: list[str] = []
        self.turned = asyncio.Event()
        self.fail = False
        deps: Any = SimpleNamespace(clock=self.clock, on_turn=lambda _turn: self.turned.set(), holds=lambda: True)
        self.loop = TermLoop("bench", self.work, 1.0, deps, idle_turn=self.idle_turn)

    async def work(self) -> TurnOutcome:
        self.turns.append("full")
        if self.fail:
            raise RuntimeError("as the test wants it")
        return TurnOutcome()

    async def idle_turn(self) -> TurnOutcome:
        self.turns.append("rest")
        return TurnOutcome()

    async def next(self) -> str:
        async with asyncio.timeout(60):
            await self.turned.wait()
        self.turned.clear()
        return self.turns[-1]


async def test_only_a_tick_that_nothing_woke_may_be_a_rest() -> None:
    bench, stop = Bench(), asyncio.Event()
    task = asyncio.create_task(bench.loop.run(stop))
    assert await bench.next() == "full", "the first turn"
    await bench.clock.advance(1.0)
    assert await bench.next() == "rest"
    bench.loop.wake()
    assert await bench.next() == "full"
    bench.fail = True
    bench.loop.wake()
    assert await bench.next() == "full"
    bench.fail = False
    await bench.clock.advance(0.1)
    assert await bench.next() == "full", "the turn after one that failed"
    await bench.clock.advance(1.0)
    assert await bench.next() == "rest"
    stop.set()
    await task
