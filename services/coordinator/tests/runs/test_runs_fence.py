"""The statements that place runs bring their own fence: a take-over that is under way wins, and so does the fence of an executor."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from toban_coordinator.store.placement import runs_assign, runs_start_assigned
from toban_coordinator.store.placement.runs_start_assigned import NewPlaced
from toban_coordinator.store.runs.runs import NewRun
from toban_domain.epoch import Epoch
from toban_domain.errors import FencedOut
from toban_domain.transitions import Placement
from toban_store.tx import fenced_statement, fenced_tx, tx

WAITS = """
SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%scheduler.leader%%' AND pid <> pg_backend_pid()
"""


async def new_run(world: Any, incarnation: str) -> NewPlaced:
    [job] = await world.sql("SELECT id FROM scheduler.job_definitions")
    run = NewRun(definition_id=job["id"], version=1, job="hello", payload="{}")
    return NewPlaced(run=run, token=7, incarnation=incarnation)


@pytest.mark.seed(31)
async def test_a_place_behind_a_take_over_writes_nothing(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    async with tx(world.pool) as taking:
        await taking.execute(
            "UPDATE scheduler.leader SET epoch = %(epoch)s::bigint WHERE id = 1", {"epoch": Epoch(1, 9).pack()}
        )
        placing = asyncio.create_task(world.loops["assign"]._work())
        while not (await world.sql(WAITS))[0]["n"]:
            assert not placing.done()
    with pytest.raises(FencedOut):
        await placing
    assert await world.state(run) == "PENDING"
    assert await world.sql("SELECT 1 FROM scheduler.job_attempts") == []
    assert world.orders.starts == []


async def test_a_take_over_waits_for_a_place_under_way(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    async with tx(world.pool) as blocking:
        await blocking.execute("SELECT 1 FROM scheduler.runs_live WHERE id = %(id)s FOR UPDATE", {"id": run})
        placing = asyncio.create_task(world.loops["assign"]._work())
        while not (await world.sql(WAITS))[0]["n"]:
            assert not placing.done()
        # The lock that the update of a take-over takes.
        held = await world.sql("SELECT 1 FROM scheduler.leader WHERE id = 1 FOR NO KEY UPDATE SKIP LOCKED")
        assert held == [], "the leader row is share-locked until the statement ends"
    await placing
    assert await world.state(run) == "ASSIGNED"


async def test_a_take_over_waits_for_the_short_way_under_way(world: Any, make: Any) -> None:
    incarnation = await world.executor()
    await world.apply(make.job())
    new = await new_run(world, incarnation)

    async def write() -> Any:
        async with fenced_statement(world.pool, world.term) as t:
            return await runs_start_assigned.start_assigned(t, [new], actor="test", fresh_seconds=60)

    async with tx(world.pool) as blocking:
        await blocking.execute("SELECT 1 FROM scheduler.executors FOR UPDATE")
        writing = asyncio.create_task(write())
        while not (await world.sql(WAITS))[0]["n"]:
            assert not writing.done()
        held = await world.sql("SELECT 1 FROM scheduler.leader WHERE id = 1 FOR NO KEY UPDATE SKIP LOCKED")
        assert held == [], "the leader row is share-locked until the statement ends"
    assert len(await writing) == 1


@pytest.mark.seed(216)
@pytest.mark.parametrize("loop", ["fire", "events", "reap", "assign"])
async def test_a_leader_that_was_replaced_turns_nothing(world: Any, make: Any, new_term: Any, loop: str) -> None:
    """Also where the statements themselves are not for leaders alone."""
    off = await world.executor(2)
    await world.executor()
    await world.apply(make.job(), make.schedule())
    await world.sql("SELECT scheduler.emit_event('nobody.waits')")
    [sent] = await world.start()
    await world.turn("assign")
    await world.sql("UPDATE scheduler.runs_live SET assigned_incarnation = %(i)s", i=off)
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now() WHERE incarnation = %(i)s", i=off)
    [waits] = await world.start()
    await world.sql("UPDATE scheduler.schedules SET next_run_at = %(n)s", n=world.now())
    await new_term(2)
    with pytest.raises(FencedOut):
        await world.loops[loop]._work()
    rows = await world.sql("SELECT id, state::text AS state FROM scheduler.runs_live ORDER BY id")
    assert rows == [{"id": sent, "state": "ASSIGNED"}, {"id": waits, "state": "PENDING"}]
    assert len(await world.sql("SELECT 1 FROM scheduler.events")) == 1


async def test_a_refused_start_is_put_back_by_the_present_leader_alone(world: Any, make: Any, new_term: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    await new_term(2)
    with pytest.raises(FencedOut):
        await world.sender._answers.gone([world.key(run)])
    assert await world.state(run) == "ASSIGNED"


@pytest.mark.seed(36, 86, 88)
@pytest.mark.parametrize("state", ["draining", "detached", "cut", "off"])
async def test_only_an_executor_that_is_on_is_given_a_run(world: Any, make: Any, state: str) -> None:
    incarnation = await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.sql(
        "UPDATE scheduler.executors SET state = %(s)s, off_at = CASE WHEN %(s)s = 'off' THEN now() END", s=state
    )
    async with fenced_statement(world.pool, world.term) as t:
        assert await runs_assign.place(t, [Placement(run_id=run, token=7, incarnation=incarnation)]) == {}
        assert (
            await runs_start_assigned.start_assigned(t, [await new_run(world, incarnation)], actor="", fresh_seconds=60)
            is None
        )
    async with fenced_tx(world.pool, world.term) as whole:
        assert await runs_assign.name_executors(whole, [(run, incarnation)]) == set()
    assert await world.state(run) == "PENDING"


async def test_a_run_that_was_sent_is_not_sent_under_another_token(world: Any, make: Any) -> None:
    one, two = await world.executor(1), await world.executor(2)
    await world.apply(make.job())
    [run] = await world.start()
    async with fenced_statement(world.pool, world.term) as t:
        assert await runs_assign.place(t, [Placement(run_id=run, token=7, incarnation=one)])
        assert await runs_assign.place(t, [Placement(run_id=run, token=8, incarnation=two)]) == {}
    row = await world.run(run)
    assert (row["token"], str(row["assigned_incarnation"])) == (7, one)
    assert len(await world.sql("SELECT 1 FROM scheduler.job_attempts")) == 1


async def test_the_short_way_makes_all_or_nothing(world: Any, make: Any) -> None:
    one, two = await world.executor(1), await world.executor(2)
    await world.apply(make.job())
    await world.sql("UPDATE scheduler.executors SET state = 'draining' WHERE incarnation = %(i)s", i=two)
    new = [await new_run(world, one), replace(await new_run(world, two), token=8)]
    async with fenced_statement(world.pool, world.term) as t:
        assert await runs_start_assigned.start_assigned(t, new, actor="test", fresh_seconds=60) is None
    assert await world.sql("SELECT 1 FROM scheduler.runs_live") == []


@pytest.mark.parametrize("change", [{"epoch": Epoch(1, 9).pack()}, {"timeline": 99}, {"system_id": "1"}], ids=str)
@pytest.mark.parametrize("way", ["place", "start_assigned"])
async def test_a_lone_statement_of_another_epoch_or_cluster_is_fenced_out(
    world: Any, make: Any, way: str, change: dict[str, Any]
) -> None:
    incarnation = await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    new = await new_run(world, incarnation)
    with pytest.raises(FencedOut):
        async with fenced_statement(world.pool, replace(world.term, **change)) as t:
            if way == "place":
                await runs_assign.place(t, [Placement(run_id=run, token=7, incarnation=incarnation)])
            else:
                await runs_start_assigned.start_assigned(t, [new], actor="test", fresh_seconds=60)
    assert await world.sql("SELECT id, state::text AS state FROM scheduler.runs_live") == [
        {"id": run, "state": "PENDING"}
    ]


@pytest.mark.parametrize("way", ["place", "start_assigned", "ahead"])
async def test_an_executor_that_goes_off_meanwhile_gets_nothing(world: Any, make: Any, way: str) -> None:
    """Its row is locked before the run is its: else the run would hang at an executor that nobody fences any more."""
    incarnation = await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    new = await new_run(world, incarnation)

    async def write() -> Any:
        if way == "ahead":
            async with fenced_tx(world.pool, world.term) as whole:
                return await runs_assign.name_executors(whole, [(run, incarnation)])
        async with fenced_statement(world.pool, world.term) as t:
            if way == "place":
                return await runs_assign.place(t, [Placement(run_id=run, token=7, incarnation=incarnation)])
            return await runs_start_assigned.start_assigned(t, [new], actor="test", fresh_seconds=60)

    async with tx(world.pool) as fencing:
        await fencing.execute("UPDATE scheduler.executors SET state = 'off', off_at = now()")
        writing = asyncio.create_task(write())
        while not (await world.sql(WAITS.replace("scheduler.leader", "scheduler.executors")))[0]["n"]:
            assert not writing.done()
    assert not await writing
    assert await world.sql("SELECT id, state::text AS state FROM scheduler.runs_live") == [
        {"id": run, "state": "PENDING"}
    ]
