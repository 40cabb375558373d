"""A database of its own for each test, and a leader's term in it."""

import psycopg
import pytest

from toban_coordinator.store import leader
from toban_domain.epoch import Term
from toban_runtime.ids import IdSource
from toban_store.pool import open_pool

IDS = IdSource()


@pytest.fixture
async def pool(pg_url):
    opened = await open_pool(pg_url, application_name="test", min_size=1, max_size=6)
    yield opened
    await opened.close()


@pytest.fixture
async def sql(pg_url):
    async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as connection:

        async def run(text, *params):
            cursor = await connection.execute(text, params)
            return await cursor.fetchall() if cursor.description else cursor.rowcount

        yield run


@pytest.fixture
async def term(pool) -> Term:
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=99, address="a:1", node_id="n1")
    taken = await leader.take_over(pool, me, observed=0, beat=0)
    return taken.term
