"""The lease of the archive is free again as soon as no pass runs, whatever ended it."""

import asyncio
from typing import Any

import psycopg
import pytest

from toban_log_archiver.store import archive_reads
from toban_store.errors import StoreError


@pytest.mark.usefixtures("production_bounds")
async def test_a_lease_that_an_outage_kept_is_given_back_before_the_next_pass(world: Any) -> None:
    await world.store(1, 10, [1, 2, 3], seal=3)
    with psycopg.connect(world.url, autocommit=True) as other:

        def lock_out(step: str) -> None:
            if step == "put" and not archiver.problem:
                other.execute("BEGIN; LOCK TABLE logs.archive_lease")

        archiver = world.archiver(before_step=lock_out)
        with pytest.raises(StoreError):
            await archiver.run_pass()
        other.execute("ROLLBACK")
        assert (await world.sql("SELECT held FROM logs.archive_lease"))[0]["held"], "it could not be given back"
        await archiver.run_pass()
    assert not await world.has_day()
    assert await world.read(1) == world.wanted(1, 10, [1, 2, 3])


async def test_a_pass_whose_caller_leaves_gives_the_lease_back(world: Any) -> None:
    await world.store(1, 10, [1, 2, 3], seal=3)
    under_way = asyncio.Event()

    class Endless:
        """An object store that takes an object for ever."""

        def __getattr__(self, name: str) -> Any:
            return getattr(world.bucket, name)

        async def put_new(self, key: str, body: bytes) -> bool:
            under_way.set()
            await asyncio.Event().wait()
            return True

    leaving = asyncio.create_task(world.work(store=Endless(), holder="first"))
    await asyncio.wait_for(under_way.wait(), 60)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert [one.action for one in await world.work(holder="second")] == ["archived", "dropped"]
    assert await world.read(1) == world.wanted(1, 10, [1, 2, 3])


async def test_what_a_patient_read_gave_may_take_its_time(world: Any) -> None:
    """20,000 rows of a manifest take longer to take in than an idle transaction may last elsewhere."""
    async with archive_reads.long_query_tx(world.pool) as t:
        await asyncio.sleep(0.7)
        assert await t.fetch_all("SELECT 1 AS one") == [{"one": 1}]
