"""Fixtures of the store's tests: a pool and a term over a migrated database of their own."""

from collections.abc import AsyncIterator

import pytest

from toban_domain.epoch import Epoch, Term
from toban_store.pool import Pool, open_pool
from toban_store.tx import tx


@pytest.fixture
async def pool(pg_url: str) -> AsyncIterator[Pool]:
    opened = await open_pool(pg_url, application_name="toban-test", min_size=1, max_size=4)
    yield opened
    await opened.close()


@pytest.fixture
async def term(pool: Pool) -> Term:
    """Takes the leader row with a first epoch, as an election would."""
    epoch = Epoch(1, 1).pack()
    async with tx(pool) as t:
        row = await t.fetch_one(
            "UPDATE scheduler.leader SET epoch = %(epoch)s::bigint WHERE id = 1"
            " RETURNING scheduler.current_system_id() AS system_id, scheduler.current_timeline() AS timeline",
            {"epoch": epoch},
        )
    assert row is not None
    return Term(epoch=epoch, worker_id=1, incarnation="1" * 32, system_id=row["system_id"], timeline=row["timeline"])
