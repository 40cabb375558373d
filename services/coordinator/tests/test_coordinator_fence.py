"""The fence of an executor over a real PostgreSQL: its row and its runs, or nothing (docs/fencing.md 3.8)."""

import asyncio
from dataclasses import replace

import pytest

from toban_coordinator.store.cluster import leader
from toban_coordinator.store.executors import executor_fencing, executors
from toban_domain.errors import FencedOut
from toban_runtime.ids import IdSource
from toban_store.tx import fenced_tx
from toban_testing.executor_rows import hold, register, run_state

IDS = IdSource()


def beat(incarnation, echo, **changes):
    return executors.Beat(incarnation=incarnation, echo=echo, **changes)


def fence_of(incarnation, grant_seq):
    return executor_fencing.Fence(incarnation=incarnation, grant_seq=grant_seq, reason="test")


async def test_a_fence_takes_the_row_and_the_runs(pool, sql, term):
    incarnation = await register(pool)
    running = await hold(sql, incarnation, "RUNNING", 71)
    sent = await hold(sql, incarnation, "ASSIGNED", 72)
    named = await hold(sql, incarnation, "ASSIGNED", None)
    asked = await hold(sql, incarnation, "CANCEL_REQUESTED", 73)
    foreign = await hold(sql, await register(pool, instance="x2"), "RUNNING", 74)
    async with fenced_tx(pool, term) as t:
        result = await executor_fencing.fence(t, [fence_of(incarnation, 0)])
    assert result == executor_fencing.Fenced(incarnations=(incarnation,), runs=3)
    assert [await run_state(sql, run) for run in (running, sent, named, asked, foreign)] == [
        "ORPHANED",
        "ORPHANED",
        "PENDING",
        "CANCEL_REQUESTED",
        "RUNNING",
    ]
    attempts = dict(await sql("SELECT run_id, state FROM scheduler.job_attempts"))
    assert attempts == {running: "LOST", sent: "LOST", asked: "DISPATCHED", foreign: "DISPATCHED"}
    closed = "SELECT state, off_reason FROM scheduler.executors WHERE instance = 'x1'"
    assert await sql(closed) == [("off", "test")]
    assert {row[0] for row in await sql("SELECT run_id FROM scheduler.job_events WHERE type = 'executor_fenced'")} == {
        running,
        sent,
        named,
    }
    assert await executors.grant(pool, [beat(incarnation, 0)]) == {}
    async with fenced_tx(pool, term) as t:
        again = replace(fence_of(incarnation, 0), reason="again")
        assert (await executor_fencing.fence(t, [again])).incarnations == (), "off is final"
    assert await sql(closed) == [("off", "test")]


async def test_a_grant_defeats_the_fence(pool, sql, term):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await executors.grant(pool, [beat(incarnation, 0)])
    async with fenced_tx(pool, term) as t:
        assert (await executor_fencing.fence(t, [fence_of(incarnation, 0)])).incarnations == ()
    assert await run_state(sql, run) == "RUNNING"


async def test_a_grant_under_way_and_a_fence_never_both_win(pool, term):
    for _ in range(20):
        incarnation = await register(pool)

        async def fenced(name=incarnation):
            async with fenced_tx(pool, term) as t:
                return (await executor_fencing.fence(t, [fence_of(name, 0)])).incarnations

        grants, off = await asyncio.gather(executors.grant(pool, [beat(incarnation, 0)]), fenced())
        assert bool(grants) != bool(off)


async def test_an_older_term_fences_no_executor(pool, term):
    incarnation = await register(pool)
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=98, address="b:1", node_id="n1")
    assert await leader.take_over(pool, me, observed=term.epoch, beat=1)
    with pytest.raises(FencedOut):
        async with fenced_tx(pool, term) as t:
            await executor_fencing.fence(t, [fence_of(incarnation, 0)])
