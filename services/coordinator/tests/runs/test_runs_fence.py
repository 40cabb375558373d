"""The statement that places runs brings its own fence: a take-over that is under way wins."""

import asyncio
from typing import Any

import pytest

from toban_domain.epoch import Epoch
from toban_domain.errors import FencedOut
from toban_store.tx import tx

WAITS = """
SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%scheduler.leader%%' AND pid <> pg_backend_pid()
"""


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
        held = await world.sql("SELECT 1 FROM scheduler.leader WHERE id = 1 FOR UPDATE SKIP LOCKED")
        assert held == [], "the leader row is share-locked until the statement ends"
    await placing
    assert await world.state(run) == "ASSIGNED"
