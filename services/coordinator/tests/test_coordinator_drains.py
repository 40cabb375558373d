"""A drain beside whoever may put its executor back to work: the drain has the last word (docs/fencing.md 3.8)."""

import asyncio

import pytest

from toban_coordinator.store.cluster import leader
from toban_coordinator.store.executors import executor_drains, executors
from toban_runtime.ids import IdSource
from toban_store.tx import fenced_tx, tx
from toban_testing.executor_rows import register
from toban_testing.waiting import until_lock_wait

IDS = IdSource()


@pytest.fixture
async def incarnation(pool):
    """A registered executor of instance x1."""
    new = executors.Registration(
        incarnation=IDS.uuid(), instance="x1", node_id="n", boot_id="b", pid=1, grpc_host="h", grpc_port=1, slots=4
    )
    assert await executors.register(pool, new, key_hash=b"h", lease_ms=10_000)
    return new.incarnation


async def state_of(sql, incarnation):
    return (await sql("SELECT state FROM scheduler.executors WHERE incarnation = %s", incarnation))[0][0]


@pytest.mark.parametrize("before", ["on", "draining"])
async def test_a_grant_that_waited_for_a_drain_leaves_it_draining(pool, sql, incarnation, before):
    """`draining` without a drain: it was undrained and no heartbeat has come since."""
    await sql("UPDATE scheduler.executors SET state = %s", before)
    async with tx(pool) as t:
        await executor_drains.drain(t, "x1", reason="", actor="test")
        granting = asyncio.create_task(executors.grant(pool, [executors.Beat(incarnation=incarnation, echo=0)]))
        await until_lock_wait(sql)
    grant = (await granting)[incarnation]
    assert (grant.granted, grant.state) == (True, "draining")
    assert await state_of(sql, incarnation) == "draining"


async def test_a_drain_that_waited_for_a_resume_has_the_last_word(pool, sql, incarnation):
    await sql("UPDATE scheduler.executors SET state = 'draining'")

    async def drain():
        async with tx(pool) as t:
            await executor_drains.drain(t, "x1", reason="", actor="test")

    async with tx(pool) as t:
        # As `resume` does between two heartbeats: it holds the row and has seen no drain.
        await t.execute("UPDATE scheduler.executors SET state = 'on'")
        draining = asyncio.create_task(drain())
        await until_lock_wait(sql)
    await draining
    assert await state_of(sql, incarnation) == "draining"


async def test_a_rejoin_that_waited_for_a_drain_comes_back_draining(pool, sql, incarnation):
    await sql("UPDATE scheduler.executors SET state = 'detached', detached_at = now()")

    me = leader.Contender(incarnation=IDS.uuid(), worker_id=99, address="a:1", node_id="n1")
    term = (await leader.take_over(pool, me, observed=0, beat=0)).term

    async def rejoin():
        async with fenced_tx(pool, term) as t:
            return await executors.rejoin(t, [incarnation])

    async with tx(pool) as t:
        await executor_drains.drain(t, "x1", reason="", actor="test")
        joining = asyncio.create_task(rejoin())
        await until_lock_wait(sql)
    assert len(await joining) == 1
    assert await state_of(sql, incarnation) == "draining"


async def test_a_batch_of_grants_locks_its_rows_in_the_order_of_incarnations(pool, sql):
    """As fences and drains do: two that wait for each other would cost both their grants."""
    low, high = sorted([await register(pool), await register(pool, instance="x2")])
    async with tx(pool) as holding:
        await holding.execute("SELECT 1 FROM scheduler.executors WHERE incarnation = %(i)s FOR UPDATE", {"i": low})
        beats = [executors.Beat(incarnation=one, echo=0) for one in (high, low)]
        granting = asyncio.create_task(executors.grant(pool, beats))
        await until_lock_wait(sql)
        assert await sql("SELECT 1 FROM scheduler.executors WHERE incarnation = %s FOR UPDATE SKIP LOCKED", high)
    assert {grant.granted for grant in (await granting).values()} == {True}
