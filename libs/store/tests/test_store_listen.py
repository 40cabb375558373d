"""Wake-ups by NOTIFY, and that the listener comes back."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from toban_runtime.clock import SystemClock
from toban_store.notifications import RECONNECTED, Listener
from toban_store.pool import Pool
from toban_store.tx import autocommit, tx


@pytest.fixture
async def payloads(pg_url: str) -> AsyncIterator[asyncio.Queue[str]]:
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def listen() -> None:
        async for payload in Listener(pg_url, application_name="toban-test-listen", clock=SystemClock()):
            queue.put_nowait(payload)

    task = asyncio.create_task(listen())
    yield queue
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def take(queue: asyncio.Queue[str]) -> str:
    async with asyncio.timeout(60):
        return await queue.get()


async def test_payloads_come_at_commit_only(pool: Pool, payloads: asyncio.Queue[str]) -> None:
    assert await take(payloads) == RECONNECTED
    with pytest.raises(KeyError):
        async with tx(pool) as t:
            await t.notify("rolled back")
            raise KeyError
    async with tx(pool) as t:
        await t.notify("assign")
        await t.notify("assign")
        await t.notify("dispatch")
    assert [await take(payloads), await take(payloads)] == ["assign", "dispatch"]


async def test_a_lost_connection_comes_back_and_says_so(pool: Pool, payloads: asyncio.Queue[str]) -> None:
    assert await take(payloads) == RECONNECTED
    async with autocommit(pool) as t:
        await t.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toban-test-listen'"
            " AND datname = current_database()"
        )
    assert await take(payloads) == RECONNECTED
    async with tx(pool) as t:
        await t.notify("again")
    assert await take(payloads) == "again"
