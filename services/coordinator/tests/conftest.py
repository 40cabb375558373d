"""A database of its own for each test, a leader's term in it, and a whole coordinator over real servers and mTLS."""

import asyncio
import json

import psycopg
import pytest

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.main.run import run
from toban_coordinator.store.cluster import leader
from toban_domain.epoch import Term
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.ids import IdSource
from toban_runtime.lifecycle import Stop
from toban_testing.admin_port import token_file
from toban_testing.coordinator_calls import health, registration
from toban_testing.kept_sessions import kept_pool, kept_sessions
from toban_testing.waiting import until, until_async
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.tls import TlsFiles

IDS = IdSource()
DOMAIN = "toban.internal"


@pytest.fixture
async def pool(coordinator_url):
    opened = await kept_pool(coordinator_url)
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


@pytest.fixture
async def process(pg_url, redis_url, tls, tmp_path):
    """A running coordinator that leads: its ports as in the ready file."""
    stop, ready = Stop(), tmp_path / "ready.json"
    config = CoordinatorConfig(
        database_url=pg_url,
        redis_url=redis_url,
        tls_dir=tls / "coordinator",
        ready_file=ready,
        node_id="n1",
        admin_token_file=token_file(tmp_path),
    )
    with kept_sessions():
        task = asyncio.create_task(run(config, stop, "test"))

        def serving():
            assert not task.done(), task.exception()
            return ready.exists() and json.loads(ready.read_text())

        ports = await until(serving)
        await until_async(lambda: health(ports), lambda found: found["checks"]["role"]["value"] == "leader")
        yield ports
        stop.request("test")
        await task


@pytest.fixture
async def call(process, tls):
    """`await call(service, stub, method, request, metadata)` as that service."""
    pools = {}

    async def one(service, stub, method, request, metadata=()):
        pool = pools.setdefault(service, ChannelPool(tls=TlsFiles(tls / service), trust_domain=DOMAIN))
        made = stub(pool.get(f"127.0.0.1:{process['grpc_port']}", "coordinator"))
        return await unary(getattr(made, method), request, timeout=60.0, metadata=metadata)

    one.pools = pools
    yield one
    for pool in pools.values():
        await pool.close()


@pytest.fixture
async def executor(call):
    """A registered executor: (incarnation, metadata, answer)."""
    request = registration()
    answer = await call("executor", rpc.ExecutorGatewayStub, "Register", request)
    metadata = (("toban-incarnation", request.incarnation), ("toban-incarnation-key", answer.incarnation_key))
    return request.incarnation, metadata, answer
