"""The leader row changes for whoever saw it as it is, and for nobody else (docs/fencing.md 3.1)."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from toban_coordinator.store.cluster import leader
from toban_domain.epoch import Epoch, Term
from toban_store.pool import Pool
from toban_store.tx import Tx, tx


def contender(number: int) -> leader.Contender:
    return leader.Contender(
        incarnation=f"00000000-0000-4000-8000-{number:012d}", worker_id=number, address=f"a:{number}", node_id="n"
    )


async def rows(pool: Pool) -> list[dict[str, Any]]:
    async with tx(pool) as t:
        return await t.fetch_all("SELECT l.*, to_jsonb(b) AS beat FROM scheduler.leader l, scheduler.leader_beat b")


@pytest.fixture
async def term(pool: Pool) -> Term:
    """The second term of this database."""
    assert await leader.take_over(pool, contender(1), observed=0, beat=0)
    row = await leader.read_row(pool)
    taken = await leader.take_over(pool, contender(2), observed=row["epoch"], beat=row["beat"])
    assert taken is not None
    return taken.term


def older(epoch: int) -> int:
    found = Epoch.unpack(epoch)
    return Epoch(found.generation, found.counter - 1).pack()


@pytest.mark.parametrize("epochs", [-1, 1], ids=["an older epoch", "an epoch that is lost"])
async def test_a_candidate_that_saw_another_epoch_takes_nothing(pool: Pool, term: Term, epochs: int) -> None:
    row = await leader.read_row(pool)
    step = term.epoch - older(term.epoch)
    before = await rows(pool)
    assert await leader.take_over(pool, contender(3), observed=term.epoch + epochs * step, beat=row["beat"]) is None
    assert await rows(pool) == before


async def test_a_candidate_that_has_not_seen_the_last_beat_takes_nothing(pool: Pool, term: Term) -> None:
    row = await leader.read_row(pool)
    assert await leader.beat(pool, term.epoch, last_tick_at=None)
    before = await rows(pool)
    assert await leader.take_over(pool, contender(3), observed=term.epoch, beat=row["beat"]) is None
    assert await rows(pool) == before


@pytest.mark.parametrize("change", [{"timeline": 99}, {"system_id": "1"}, {"database": 1}], ids=str)
async def test_who_asked_another_server_before_takes_nothing(
    pool: Pool, term: Term, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fail-over between the question and the take-over: the epoch was made for the server of before."""
    ask = leader._prospect

    async def before_the_fail_over(t: Tx) -> dict[str, Any]:
        return {**await ask(t), **change}

    monkeypatch.setattr(leader, "_prospect", before_the_fail_over)
    row, before = await leader.read_row(pool), await rows(pool)
    assert await leader.take_over(pool, contender(3), observed=term.epoch, beat=row["beat"]) is None
    assert await rows(pool) == before


async def test_of_many_who_saw_the_same_one_wins(pool: Pool, term: Term) -> None:
    await leader.beat(pool, term.epoch, last_tick_at=datetime(2026, 1, 1, tzinfo=UTC))
    row = await leader.read_row(pool)
    tries = [leader.take_over(pool, contender(n), observed=term.epoch, beat=row["beat"]) for n in range(3, 11)]
    [won] = [taken for taken in await asyncio.gather(*tries) if taken is not None]
    after = await leader.read_row(pool)
    assert (after["epoch"], after["worker_id"]) == (won.term.epoch, won.term.worker_id)
    assert won.term.epoch > term.epoch
    assert row["last_tick_at"] and after["last_tick_at"] is None, "the new leader has not ticked yet"


async def test_a_term_that_is_over_writes_nothing(pool: Pool, term: Term) -> None:
    past, before = older(term.epoch), await rows(pool)
    assert await leader.beat(pool, past, last_tick_at=None) is None
    assert not await leader.resign(pool, past)
    async with tx(pool) as t:
        assert not await leader.demote(t, past)
    assert await rows(pool) == before
    assert await leader.beat(pool, term.epoch, last_tick_at=None)
    assert await leader.resign(pool, term.epoch)
    [row] = await rows(pool)
    assert row["resigned_epoch"] == row["epoch"] == term.epoch


@pytest.mark.parametrize(
    "change",
    ["holder = gen_random_uuid()", "holder = NULL", "epoch = epoch + (1::bigint << 27)"],
    ids=["another holder", "no holder", "another epoch"],
)
async def test_a_beat_while_the_leader_row_names_another_term_is_none_of_this_one(
    pool: Pool, term: Term, change: str
) -> None:
    """The beat's row is a row of its own: where both do not fit together, its commit confirms no leader."""
    beaten = await leader.beat(pool, term.epoch, last_tick_at=None)
    assert beaten is not None and beaten.is_of(term)
    async with tx(pool) as t:
        await t.execute(f"UPDATE scheduler.leader SET {change}")
    beaten = await leader.beat(pool, term.epoch, last_tick_at=None)
    assert beaten is not None and not beaten.is_of(term)
