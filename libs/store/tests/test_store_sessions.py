"""Sessions that hang while their TCP peer lives: each wait ends, the session is closed, and the outcome has its right name."""

import asyncio
import select
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from toban_domain.epoch import Term
from toban_runtime.clock import SystemClock
from toban_store import notifications
from toban_store.errors import DidNotHappen, OutcomeUnknown
from toban_store.notifications import RECONNECTED, Listener
from toban_store.pool import Pool, open_pool
from toban_store.sessions import Session, statement_seconds
from toban_store.tx import Tx, autocommit, fenced_tx, tx
from toban_testing.proxy import FaultProxy
from toban_testing.servers import SessionServers

SETTING = "INSERT INTO scheduler.settings (name, value) VALUES (%(name)s::text, '1')"
NAMES = "SELECT name FROM scheduler.settings ORDER BY name"
WAITING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
# What a wait of these tests may take; nothing bounded it before.
BOUND = 60.0


@pytest.fixture
async def proxy(pg_url: str) -> AsyncIterator[FaultProxy]:
    server = conninfo_to_dict(pg_url)
    async with FaultProxy(host=str(server["host"]), port=int(server["port"] or 0)) as made:
        yield made


@pytest.fixture
def hung_url(pg_url: str, proxy: FaultProxy) -> str:
    """The database behind the proxy."""
    return make_conninfo(pg_url, host="127.0.0.1", port=proxy.port)


@pytest.fixture
async def alone(hung_url: str) -> AsyncIterator[Pool]:
    """One connection behind the proxy, whose waits are short."""
    opened = await open_pool(hung_url, application_name="toban/alone", min_size=1, max_size=1, answer_seconds=0.5)
    yield opened
    await opened.close()


async def names(pool: Pool) -> list[str]:
    async with autocommit(pool) as t:
        return [row["name"] for row in await t.fetch_all(NAMES)]


async def test_a_hung_statement_did_not_happen_and_gives_its_place_back(
    alone: Pool, pool: Pool, proxy: FaultProxy
) -> None:
    async with asyncio.timeout(BOUND):
        with pytest.raises(DidNotHappen, match="no answer in time"):
            async with tx(alone) as t:
                await t.execute(SETTING, {"name": "a"})
                proxy.swallow()
                await t.execute(SETTING, {"name": "b"})
        assert await names(alone) == []
    assert await names(pool) == []


async def test_a_hung_begin_of_a_fenced_transaction_did_not_happen(alone: Pool, term: Term, proxy: FaultProxy) -> None:
    assert await names(alone) == []
    proxy.swallow()
    async with asyncio.timeout(BOUND):
        with pytest.raises(DidNotHappen):
            async with fenced_tx(alone, term):
                raise AssertionError("the block must not run")
        async with fenced_tx(alone, term) as t:
            await t.execute(SETTING, {"name": "a"})


async def test_a_hung_commit_is_unknown(alone: Pool, proxy: FaultProxy) -> None:
    async with asyncio.timeout(BOUND):
        with pytest.raises(OutcomeUnknown):
            async with tx(alone) as t:
                await t.execute(SETTING, {"name": "a"})
                proxy.swallow()
        assert await names(alone) == []


async def test_a_lone_write_whose_answer_is_lost_is_unknown_and_happened(
    hung_url: str, pool: Pool, proxy: FaultProxy
) -> None:
    """Only a read can find that out."""
    patient = make_conninfo(hung_url, options="-c lock_timeout=30s -c statement_timeout=30s")
    async with AsyncExitStack() as stack, asyncio.timeout(BOUND):
        waiting = await _opened(stack, patient, 1, 3.0)
        async with tx(pool) as t:
            await t.execute("SELECT pg_advisory_xact_lock(1)")
            writing = asyncio.create_task(_write_after_the_lock(waiting))
            while not await t.fetch_one(WAITING):  # noqa: ASYNC110 (another session: nothing to wait for)
                await asyncio.sleep(0.01)
            proxy.swallow()
        with pytest.raises(OutcomeUnknown):
            await writing
        while await names(pool) != ["a"]:  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.01)


async def _write_after_the_lock(pool: Pool) -> None:
    async with autocommit(pool) as t:
        await t.execute(
            "INSERT INTO scheduler.settings (name, value) SELECT 'a', '1' FROM (SELECT pg_advisory_xact_lock(1)) AS lock"
        )


async def test_a_hung_lone_write_is_unknown(alone: Pool, proxy: FaultProxy) -> None:
    assert await names(alone) == []
    proxy.swallow()
    async with asyncio.timeout(BOUND):
        with pytest.raises(OutcomeUnknown):
            async with autocommit(alone) as t:
                await t.execute(SETTING, {"name": "a"})


@pytest.mark.usefixtures("production_bounds")
async def test_after_one_hung_session_the_idle_ones_are_replaced_before_anybody_uses_them(
    hung_url: str, proxy: FaultProxy
) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(BOUND):
        election = await _opened(stack, hung_url, 1, 0.5)
        others = await _opened(stack, hung_url, 3)
        async with autocommit(election) as t, tx(others), tx(others), tx(others):
            await t.fetch_one("SELECT 1 AS one")
        proxy.swallow()
        with pytest.raises(OutcomeUnknown):
            await names(election)
        # Each in a task of its own, as loops are.
        assert await asyncio.gather(*(names(others) for _ in range(3))) == [[], [], []]


async def test_a_healthy_session_survives_the_end_of_a_hung_one(pg_url: str, alone: Pool, proxy: FaultProxy) -> None:
    async with AsyncExitStack() as stack:
        healthy = await _opened(stack, pg_url, 1)
        before = await _backend(healthy)
        assert await names(alone) == []
        proxy.swallow()
        with pytest.raises(OutcomeUnknown):
            await names(alone)
        assert await _backend(healthy) == before


async def _opened(stack: AsyncExitStack, url: str, size: int, answer_seconds: float | None = None) -> Pool:
    opened = await open_pool(
        url, application_name="toban-test", min_size=size, max_size=size, answer_seconds=answer_seconds
    )
    stack.push_async_callback(opened.close)
    return opened


async def _backend(pool: Pool) -> int:
    async with autocommit(pool) as t:
        row = await t.fetch_one("SELECT pg_backend_pid() AS pid")
    assert row is not None
    return int(row["pid"])


async def _sent(session: Session) -> None:
    """Until a statement of this session is under way."""
    while session._bound is None:  # noqa: ASYNC110 (the wait for its answer begins with the bound)
        await asyncio.sleep(0)


@pytest.mark.usefixtures("production_bounds")
async def test_a_cancelled_wait_for_a_hung_session_ends(hung_url: str, proxy: FaultProxy, at_most: Any) -> None:
    """With the usual bounds; psycopg alone would wait ten seconds for the agreement of the server."""
    async with AsyncExitStack() as stack:
        usual = await _opened(stack, hung_url, 1)
        async with usual.connection() as session:
            await session.execute(NAMES)
        proxy.swallow()
        waiting = asyncio.create_task(names(usual))
        await _sent(session)
        waiting.cancel()
        _, pending = await asyncio.wait([waiting], timeout=at_most(6))
        assert not pending
        assert waiting.cancelled()
        assert await names(usual) == []


async def test_an_answer_that_this_process_was_too_busy_to_read_counts(pg_url: str) -> None:
    async with AsyncExitStack() as stack:
        strict = await _opened(stack, pg_url, 1, 1.0)
        before = await _backend(strict)
        async with autocommit(strict) as t:
            reading = asyncio.create_task(t.fetch_one("SELECT 1 AS one FROM pg_sleep(0.1)"))
            await _sent(t._connection)
            # The event loop stands still for longer than the bound, and until the answer is there.
            threading.Event().wait(1.2)
            arrived = select.poll()
            arrived.register(t._connection.pgconn.socket, select.POLLIN)
            assert arrived.poll(60_000)
            assert await reading == {"one": 1}
        assert await _backend(strict) == before


async def test_a_long_transaction_may_wait_as_long_as_it_asked_for(alone: Pool) -> None:
    async with tx(alone) as t:
        await t.allow_seconds(5)
        assert await t.fetch_one("SELECT 1 AS one, current_setting('statement_timeout') AS v FROM pg_sleep(0.8)") == {
            "one": 1,
            "v": "5s",
        }
    with pytest.raises(OutcomeUnknown):
        async with autocommit(alone) as lone:
            await lone.execute("SELECT pg_sleep(5)")


@pytest.mark.usefixtures("production_bounds")
@pytest.mark.parametrize(
    ("options", "statement_ms", "answer_seconds", "bound"),
    [("", None, None, 3.0), ("", 200, None, 1.2), ("", None, 0.9, 0.9), ("-c statement_timeout=7s", None, None, 8.0)],
)
async def test_the_bound_follows_from_the_statement_timeout_of_the_server(
    pg_url: str, options: str, statement_ms: int | None, answer_seconds: float | None, bound: float
) -> None:
    opened = await open_pool(
        make_conninfo(pg_url, options=options),
        application_name="toban-test",
        min_size=1,
        max_size=1,
        statement_ms=statement_ms,
        answer_seconds=answer_seconds,
    )
    async with opened.connection() as session:
        assert session._answer_seconds == pytest.approx(bound)
    await opened.close()


def test_durations_as_postgresql_shows_them() -> None:
    shown = ["200ms", "2s", "1min", "1h", "1500ms", "0"]
    assert [statement_seconds(value) for value in shown] == [0.2, 2.0, 60.0, 3600.0, 1.5, 2.0]


async def test_a_listener_behind_a_dead_proxy_connects_again(
    hung_url: str, pool: Pool, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "QUIET_SECONDS", 0.2)
    payloads = aiter(Listener(hung_url, application_name="toban-test-listen", clock=SystemClock()))
    async with asyncio.timeout(BOUND):
        assert await anext(payloads) == RECONNECTED
        proxy.swallow()
        assert await anext(payloads) == RECONNECTED
        waiting = asyncio.ensure_future(anext(payloads))
        async with tx(pool) as t:
            await t.notify("assign")
        assert await waiting == "assign"
    await payloads.aclose()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("production_bounds")
async def test_a_server_that_accepts_no_writes_is_named_as_the_reason(pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {owner.info.dbname} SET default_transaction_read_only = on")
    refused = await open_pool(pg_url, application_name="toban-test", min_size=1, max_size=1)
    accepted = await open_pool(
        make_conninfo(pg_url, target_session_attrs="any"), application_name="toban-test", min_size=1, max_size=1
    )
    try:
        with pytest.raises(DidNotHappen) as caught:
            await names(refused)
        assert str(caught.value.message) == (
            "cannot connect to PostgreSQL: session is read-only; no host of SCHEDULER_DATABASE_URL accepts writes: "
            "name the primary, or accept a standby with target_session_attrs=any in the URL"
        )
        assert await names(accepted) == []
    finally:
        await refused.close()
        await accepted.close()
        with psycopg.connect(pg_url, autocommit=True, options="-c default_transaction_read_only=off") as owner:
            owner.execute(f"ALTER DATABASE {owner.info.dbname} RESET default_transaction_read_only")


@pytest.fixture
def twin_url(pg_url: str, pg_major: int) -> Iterator[str]:
    """Another server with a database and a role of the same names."""
    other, wanted = SessionServers(), conninfo_to_dict(pg_url)
    name = wanted["dbname"]
    try:
        url = other.postgres(pg_major).empty()
        with psycopg.connect(url, autocommit=True) as owner:
            if owner.info.dbname != name:
                owner.execute(f"CREATE DATABASE {name}")
            owner.execute(f"ALTER ROLE {wanted['user']} PASSWORD '{wanted['password']}'")
        yield make_conninfo(url, dbname=name, password=wanted["password"])
    finally:
        other.stop()


async def test_the_idle_sessions_of_a_server_that_was_replaced_are_not_used(
    hung_url: str, twin_url: str, proxy: FaultProxy
) -> None:
    twin = conninfo_to_dict(twin_url)
    async with AsyncExitStack() as stack:
        early = await _opened(stack, hung_url, 2)
        async with autocommit(early) as t, autocommit(early) as t2:
            old = {await _port(t), await _port(t2)}
        proxy.retarget(host=str(twin["host"]), port=int(twin["port"] or 0))
        # Nothing is wrong with the first server: without a look at a new session, its sessions would be used on.
        async with autocommit(await _opened(stack, hung_url, 1)) as t:
            new = await _port(t)
        async with autocommit(early) as t, autocommit(early) as t2:
            assert {await _port(t), await _port(t2)} == {new}
        assert new not in old


async def _port(t: Tx) -> int:
    row = await t.fetch_one("SELECT current_setting('port')::int AS port")
    assert row is not None
    return int(row["port"])


@pytest.mark.seed(224)
async def test_a_standby_among_several_hosts_is_skipped(pg_url: str, twin_url: str) -> None:
    first, second = conninfo_to_dict(twin_url), conninfo_to_dict(pg_url)
    with psycopg.connect(twin_url, autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {first['dbname']} SET default_transaction_read_only = on")
    both = make_conninfo(pg_url, host=f"{first['host']},{second['host']}", port=f"{first['port']},{second['port']}")
    for attributes, expected in (({}, second), ({"target_session_attrs": "any"}, first)):
        async with AsyncExitStack() as stack:
            opened = await _opened(stack, make_conninfo(both, **attributes), 1)
            async with autocommit(opened) as t:
                assert await _port(t) == int(expected["port"] or 0)


async def test_a_server_that_was_demoted_under_a_session_loses_it(pg_url: str) -> None:
    async with AsyncExitStack() as stack:
        demoted = await _opened(stack, pg_url, 1)
        async with autocommit(demoted) as t:
            await t.execute("SET default_transaction_read_only = on")
        before = await _backend(demoted)
        with pytest.raises(DidNotHappen):
            async with tx(demoted) as t2:
                await t2.execute(SETTING, {"name": "a"})
        async with tx(demoted) as t3:
            await t3.execute(SETTING, {"name": "a"})
        assert await _backend(demoted) != before


@pytest.mark.usefixtures("production_bounds")
async def test_why_nothing_connects_is_said_without_the_address(free_port: int) -> None:
    absent = await open_pool(
        f"postgresql://nobody@127.0.0.1:{free_port}/none", application_name="toban-test", min_size=1, max_size=1
    )
    with pytest.raises(DidNotHappen) as caught:
        await names(absent)
    await absent.close()
    assert "Connection refused" in caught.value.message
    assert str(free_port) not in caught.value.message


async def test_the_session_that_was_used_last_is_used_next(pg_url: str) -> None:
    """Its process of PostgreSQL has its caches and plans at hand."""
    pool = await open_pool(pg_url, application_name="toban/warm", min_size=1, max_size=3)
    try:
        await pool.wait()
        held = [await pool.getconn() for _ in range(3)]
        for session in held:
            await pool.putconn(session)
        for _ in range(3):
            session = await pool.getconn()
            assert session is held[-1]
            await pool.putconn(session)
        # As each `max_idle` seconds: the first look only notes how many are idle.
        for _ in range(3):
            await pool._shrink_pool()
        assert [session.closed for session in held] == [True, True, False], (
            "those that were idle for longest are closed"
        )
    finally:
        await pool.close()
