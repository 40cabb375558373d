"""The epoch of a take-over: one more where the last was taken, a new generation once where PostgreSQL may have gone back."""

import uuid

import pytest

from toban_coordinator.store import leader
from toban_domain.epoch import Epoch
from toban_store.pool import Pool
from toban_store.tx import tx


async def taken(pool: Pool) -> Epoch:
    """The epoch of the next term, on whatever cluster this seems to be."""
    row = await leader.read_row(pool)
    who = leader.Contender(
        incarnation=str(uuid.uuid5(uuid.NAMESPACE_OID, "x")), worker_id=1, address="a:1", node_id="n"
    )
    won = await leader.take_over(pool, who, observed=row["epoch"], beat=row["beat"])
    assert won is not None
    return Epoch.unpack(won.term.epoch)


async def changed(pool: Pool, assignment: str) -> None:
    async with tx(pool) as t:
        await t.execute(f"UPDATE scheduler.leader SET {assignment}".encode())


async def test_terms_in_one_place_count_up(pool: Pool) -> None:
    first = await taken(pool)
    assert await taken(pool) == Epoch(first.generation, first.counter + 1)


@pytest.mark.parametrize(
    "past", ["term_system_id = 'another'", "term_timeline = term_timeline + 7", "term_database = 1"]
)
async def test_another_place_is_one_generation_however_often_leaders_change_there(pool: Pool, past: str) -> None:
    before = await taken(pool)
    await changed(pool, f"{past}, settled_system_id = 'another'")
    assert await taken(pool) == Epoch(before.generation + 1, 1)
    assert await taken(pool) == Epoch(before.generation + 1, 2), "still not settled, and no generation more"


async def test_a_release_that_noted_nothing_down_is_judged_by_the_settled_cluster(pool: Pool) -> None:
    before = await taken(pool)
    nothing = "term_system_id = NULL, term_timeline = NULL, term_database = NULL"
    await changed(pool, nothing)
    assert await taken(pool) == Epoch(before.generation, before.counter + 1)
    await changed(pool, f"{nothing}, settled_system_id = 'another'")
    assert (await taken(pool)).generation == before.generation + 1
