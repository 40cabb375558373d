"""Coordinators that stand for leadership over a real PostgreSQL and Redis."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from toban_coordinator.leadership import ElectionDeps, ElectionThread, Leadership, ServerTime, TermDeps
from toban_coordinator.store.cluster import coordinators, leader
from toban_fencing.redis_client import RedisLink, open_client
from toban_fencing.redis_locks import LeaderLock
from toban_fencing.worker_registry import Members
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_runtime.loop import Loop, WakeRegistry
from toban_store import roles
from toban_store.pool import open_pool
from toban_store.tx import fenced_tx
from toban_testing.postgres import as_role

CLOCK = SystemClock()


@dataclass
class Node:
    leadership: Leadership
    pool: object
    link: RedisLink
    # The elector's, of use in its thread only.
    lock: LeaderLock
    lock_link: RedisLink
    task: asyncio.Task
    terms: list
    thread: ElectionThread
    server_time: ServerTime

    @property
    def leads(self):
        return self.leadership.view().leading

    @property
    def epoch(self):
        return self.leadership.view().epoch

    async def die(self):
        """As a crash: nothing is given back."""
        running = self.leadership._running
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.thread.run(self.leadership._runner.abort())
        if running is not None:
            running.cancel()


@pytest.fixture
async def cluster(pg_url, redis_url):
    """`await cluster()` adds a coordinator."""
    async with AsyncExitStack() as stack:
        yield lambda redis_url=redis_url, **how: stack.enter_async_context(running(pg_url, redis_url, **how))


@asynccontextmanager
async def running(pg_url, redis_url, *, node_id="n1", timings=None):
    url = as_role(pg_url, roles.COORDINATOR)
    pool = await open_pool(url, application_name="test", min_size=2, max_size=4)
    thread = ElectionThread()
    link, lock_link = (RedisLink(client=open_client(redis_url), clock=CLOCK) for _ in range(2))
    election = await thread.run(open_pool(url, application_name="election", min_size=2, max_size=2))
    worker_id = await coordinators.draw_worker_id(pool)
    lock = LeaderLock(link=lock_link, worker_id=worker_id)
    server_time = ServerTime(clock=CLOCK)
    terms = []

    def make_loops(term, tokens, on_turn):
        terms.append((term, tokens))

        async def turn():
            async with fenced_tx(pool, term) as t:
                await t.fetch_one("SELECT 1")

        return [Loop("work", turn, 0.2, CLOCK, on_turn=on_turn)]

    leadership = Leadership(
        deps=ElectionDeps(
            thread=thread,
            pool=election,
            lock=lock,
            members=Members(link=lock_link),
            clock=CLOCK,
            server_time=server_time,
        ),
        contender=leader.Contender(
            incarnation=IdSource().uuid(), worker_id=worker_id, address=f"127.0.0.1:{worker_id}", node_id=node_id
        ),
        term_deps=TermDeps(
            pool=pool,
            clock=CLOCK,
            now=server_time.now,
            make_loops=make_loops,
            least_lease_ms=lambda: 10_000,
            tick_seconds=lambda: 1.0,
            wakes=WakeRegistry(),
        ),
        timings=timings,
    )
    task = asyncio.create_task(leadership.run())
    node = Node(leadership, pool, link, lock, lock_link, task, terms, thread, server_time)
    try:
        yield node
    finally:
        if not node.task.done():
            await leadership.leave()
        await asyncio.gather(node.task, return_exceptions=True)
        await link.close()
        await thread.run(lock_link.close())
        await thread.run(election.close())
        await thread.stop()
        await pool.close()


@pytest.fixture(name="coordinator")
def coordinator_fixture():
    """`async with coordinator(pg_url, redis_url) as node` is one coordinator."""
    return running
