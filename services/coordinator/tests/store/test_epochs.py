"""The epoch of a take-over: one more where the last was taken, a new generation once where PostgreSQL may have gone back."""

import shutil
import uuid
from pathlib import Path

import psycopg
import pytest

from toban_coordinator.store.cluster import leader
from toban_domain.epoch import Epoch
from toban_store import migrate
from toban_store.pool import Pool
from toban_store.tx import fenced_tx, tx


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


async def settled(pool: Pool) -> bool:
    row = await leader.read_row(pool)
    who = leader.Contender(
        incarnation=str(uuid.uuid5(uuid.NAMESPACE_OID, "x")), worker_id=1, address="a:1", node_id="n"
    )
    won = await leader.take_over(pool, who, observed=row["epoch"], beat=row["beat"])
    assert won is not None
    return won.settled


async def test_a_restore_within_the_server_is_not_settled(pool: Pool) -> None:
    """Same system identifier and timeline, another database: executors may hold leases on runs that this one does not know."""
    assert await settled(pool), "a release that noted no database down: the present one counts"
    row = await leader.read_row(pool)
    who = leader.Contender(
        incarnation=str(uuid.uuid5(uuid.NAMESPACE_OID, "x")), worker_id=1, address="a:1", node_id="n"
    )
    won = await leader.take_over(pool, who, observed=row["epoch"], beat=row["beat"])
    assert won is not None
    async with fenced_tx(pool, won.term) as t:
        await leader.settle(t)
    assert await settled(pool)
    await changed(pool, "settled_database = 1")
    assert not await settled(pool)


def test_what_executors_knew_before_there_were_signatures_counts_up_to_the_leaders_generation(
    pg_empty_url: str, tmp_path: Path
) -> None:
    """An inflated claim does not, nor one of an incarnation that never had a grant."""
    for path in migrate.MIGRATIONS.rglob("*.sql"):
        if path.parent.name != "scheduler" or path.name < "0007":
            (tmp_path / path.parent.name).mkdir(exist_ok=True)
            shutil.copy(path, tmp_path / path.parent.name)
    migrate.up(pg_empty_url, folder=tmp_path)
    known = [(Epoch(3, 9, 5), 2), (Epoch(3, 8), 7), (Epoch(4, 1), 7), (Epoch(4000, 1), 7), (Epoch(3, 99), 0)]
    with psycopg.connect(pg_empty_url, autocommit=True) as connection:
        connection.execute("UPDATE scheduler.leader SET epoch = %s", [Epoch(3, 5).pack()])
        for number, (epoch, grants) in enumerate(known):
            connection.execute(
                "INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port, key_hash,"
                " lease_ms, epoch_max, grant_seq, slots) VALUES (gen_random_uuid(), %s, 'x', 'n', 'b', 1, 'h', 1, '', 10000, %s, %s, 1)",
                [number + 1, epoch.pack(), grants],
            )
        migrate.up(pg_empty_url)
        rows = connection.execute("SELECT l.epoch, b.epoch FROM scheduler.leader l, scheduler.leader_beat b").fetchall()
    assert rows == [(Epoch(3, 9).pack(),) * 2]
