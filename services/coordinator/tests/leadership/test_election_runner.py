"""Leadership over a real PostgreSQL and Redis: who leads, hand-overs, and what an outage may cost (docs/fencing.md 3.1-3.3)."""

import asyncio
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import psycopg
import pytest
import redis.asyncio

from toban_domain.errors import FencedOut
from toban_fencing.redis_locks import LOCK_KEY
from toban_fencing.worker_registry import Members, worker_key
from toban_store.tx import fenced_tx
from toban_testing.proxy import FaultProxy
from toban_testing.waiting import until


async def seconds_until(condition):
    start = asyncio.get_running_loop().time()
    await until(condition)
    return asyncio.get_running_loop().time() - start


@pytest.mark.seed(3)
async def test_the_first_coordinator_leads_at_once(cluster, at_most):
    node = await cluster()
    assert await seconds_until(lambda: node.leads) < at_most(1.0)
    assert node.leadership.view().settled
    await until(lambda: node.leadership.view().last_tick_at is not None)


@pytest.mark.seed(80)
async def test_a_crash_is_taken_over_with_a_higher_epoch(cluster, at_most):
    first = await cluster()
    await until(lambda: first.leads)
    second = await cluster()
    await asyncio.sleep(1.5)
    assert not second.leads
    epoch = first.epoch
    await first.die()
    assert await seconds_until(lambda: second.leads) < at_most(3.0)
    assert second.epoch > epoch


@pytest.mark.seed(107)
async def test_a_crash_with_evidence_is_taken_over_within_a_second_and_a_half(cluster, at_most):
    first, second = await cluster(), await cluster()
    await until(lambda: first.leads or second.leads)
    dead, other = (first, second) if first.leads else (second, first)
    await until(lambda: other.epoch == dead.epoch)
    await dead.die()
    other.leadership.report_leader_death(dead.epoch)
    assert await seconds_until(lambda: other.leads) < at_most(1.0)


async def test_a_planned_hand_over_takes_well_under_a_second(cluster, at_most):
    first = await cluster()
    await until(lambda: first.leads)
    second = await cluster()
    await until(lambda: second.epoch == first.epoch)
    leaving = asyncio.create_task(first.leadership.leave())
    assert await seconds_until(lambda: second.leads) < at_most(1.0)
    await leaving
    assert second.epoch > first.epoch or not first.leads


async def test_a_flushed_redis_changes_no_leader(cluster, redis_url):
    first, second = await cluster(), await cluster()
    await until(lambda: first.leads or second.leads)
    epochs = first.epoch, second.epoch
    async with redis.asyncio.from_url(redis_url) as client:
        for _ in range(4):
            await client.flushdb()
            await asyncio.sleep(0.7)
        assert (await client.get(LOCK_KEY)).decode().startswith(str(max(epochs)))
    assert max(first.epoch, second.epoch) == max(epochs)
    assert first.leads != second.leads


@pytest.mark.seed(179)
@pytest.mark.parametrize("fault", ["cut", pytest.param("freeze", marks=pytest.mark.long)])
async def test_a_lost_redis_changes_no_leader(cluster, redis_url, fault):
    parts = urlsplit(redis_url)
    async with FaultProxy(host=parts.hostname, port=parts.port) as proxy:
        url = redis_url.replace(f"{parts.hostname}:{parts.port}", proxy.address)
        first = await cluster(url)
        await until(lambda: first.leads)
        second = await cluster(url)
        epoch = first.epoch
        if fault == "cut":
            await proxy.cut()
        else:
            proxy.freeze()
        await until(lambda: not first.lock_link.up)
        await asyncio.sleep(5.0)
        assert (first.leads, first.epoch, second.leads) == (True, epoch, False)
        proxy.heal()
        await until(lambda: first.lock_link.up)
        await asyncio.sleep(1.0)
        assert (first.leads, first.epoch, second.leads) == (True, epoch, False)
        async with redis.asyncio.from_url(redis_url, decode_responses=True) as client:
            assert (await client.get(LOCK_KEY)).startswith(f"{epoch}:")


@pytest.mark.seed(180)
@pytest.mark.parametrize("fault", ["cut", "freeze"])
async def test_a_leader_without_postgresql_stops_within_two_seconds(coordinator, pg_url, redis_url, fault, at_most):
    parts = urlsplit(pg_url)
    async with FaultProxy(host=parts.hostname, port=parts.port) as proxy:
        url = pg_url.replace(f"{parts.hostname}:{parts.port}", proxy.address)
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(coordinator(url, redis_url))
            await until(lambda: first.leads)
            second = await stack.enter_async_context(coordinator(pg_url, redis_url))
            await until(lambda: second.epoch == first.epoch)
            epoch = first.epoch
            if fault == "cut":
                await proxy.cut()
            else:
                proxy.freeze()
            assert await seconds_until(lambda: not first.leads) < at_most(1.6)
            assert await seconds_until(lambda: second.leads) < at_most(3.0)
            assert second.epoch > epoch
            proxy.heal()
            await until(lambda: first.epoch == second.epoch)
            assert second.leads


async def test_without_any_redis_there_is_a_leader_too(cluster, free_port, at_most):
    url = f"redis://127.0.0.1:{free_port}/0"
    node = await cluster(url)
    assert await seconds_until(lambda: node.leads) < at_most(1.0)
    other = await cluster(url)
    await asyncio.sleep(0.5)
    await node.die()
    assert 2.0 < await seconds_until(lambda: other.leads) < at_most(4.5)


@pytest.mark.seed(35)
async def test_the_degrade_flag_deposes_and_is_cleared(cluster, redis_url, at_most):
    first = await cluster()
    await until(lambda: first.leads)
    second = await cluster()
    await until(lambda: second.epoch == first.epoch)
    epoch, worker_id = first.epoch, first.leadership.me.worker_id
    await Members(link=second.link).set_degrade(worker_id, epoch)
    assert await seconds_until(lambda: second.leads) < at_most(2.0)
    assert second.epoch > epoch
    async with redis.asyncio.from_url(redis_url) as client:
        assert not await client.hexists(worker_key(worker_id), "degrade_leader")


@pytest.mark.seed(71)
async def test_a_degrade_flag_for_another_epoch_is_ignored(cluster):
    node = await cluster()
    await until(lambda: node.leads)
    await Members(link=node.link).set_degrade(node.leadership.me.worker_id, node.epoch - (1 << 27))
    await asyncio.sleep(1.0)
    assert node.leads


async def test_a_stale_leaders_fenced_write_is_refused(cluster):
    first = await cluster()
    await until(lambda: first.terms)
    old = first.terms[0][0]
    await first.die()
    second = await cluster()
    await until(lambda: second.leads)
    with pytest.raises(FencedOut):
        async with fenced_tx(first.pool, old):
            pass


async def test_a_fence_ends_the_term_at_once(cluster, pg_url, at_most):
    node = await cluster()
    await until(lambda: node.terms)
    epoch = node.epoch
    async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as connection:
        await connection.execute("UPDATE scheduler.leader SET epoch = epoch + (1 << 27)")
    assert await seconds_until(lambda: not node.leads) < at_most(1.0)
    await until(lambda: node.leads)
    assert node.epoch > epoch + (1 << 27)


async def test_an_unsettled_cluster_runs_no_loop_until_a_lease_has_passed(cluster, pg_url):
    async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as connection:
        await connection.execute("UPDATE scheduler.leader SET settled_timeline = settled_timeline + 1")
    node = await cluster()
    await until(lambda: node.leads)
    assert not node.leadership.view().settled
    await asyncio.sleep(1.0)
    assert not node.terms
    assert node.leadership.view().last_tick_at is not None


@pytest.mark.seed(68, 82)
async def test_the_epoch_and_the_last_tick_are_mirrored(cluster, redis_url):
    node = await cluster()
    await until(lambda: node.leadership.view().last_tick_at is not None)
    await asyncio.sleep(1.0)
    async with redis.asyncio.from_url(redis_url, decode_responses=True) as client:
        assert await client.get("scheduler:leader:epoch") == str(node.epoch)
        assert float(await client.get("scheduler:leader:last_seen_ts")) > 1e9
        assert await client.get(LOCK_KEY) == f"{node.epoch}:{node.leadership.me.worker_id}"
        assert 0 < await client.pttl(LOCK_KEY) <= 2000
