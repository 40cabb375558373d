"""A kept session is as a new one for the next test, and one that has ended is not used again."""

import psycopg
import pytest

from toban_store.pool import Pool
from toban_testing.kept_sessions import kept_pool
from toban_testing.servers import SessionServers

SESSION = """
SELECT pg_backend_pid() AS pid, current_user::text AS role, current_setting('search_path') AS path,
       current_setting('statement_timeout') AS timeout, to_regclass('pg_temp.mine')::text AS temporary,
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks,
       (SELECT count(*) FROM pg_listening_channels()) AS channels"""


async def ask(pool: Pool, *statements: str) -> dict[str, object]:
    """The session after these statements."""
    async with pool.connection() as session:
        for statement in statements:
            await session.execute(statement.encode())
        row = await (await session.execute(SESSION)).fetchone()
    assert row is not None
    return row


async def test_a_kept_session_is_as_a_new_one(coordinator_url: str) -> None:
    pool = await kept_pool(coordinator_url)
    new = await ask(pool)
    assert (await ask(pool, "LISTEN here", "SELECT pg_advisory_lock(1)"))["locks"] == 1
    used = await ask(
        pool, "SET search_path = logs", "SET statement_timeout = 1234", "CREATE TEMP TABLE mine ()", "RESET ROLE"
    )
    assert used["temporary"] is not None
    assert used["path"] != new["path"]
    await ask(pool, "SET ROLE NONE")
    await pool.close()
    again = await kept_pool(coordinator_url)
    assert await ask(again) == new
    await again.close()


async def test_a_session_that_is_not_in_order_is_not_kept(coordinator_url: str) -> None:
    pool = await kept_pool(coordinator_url)
    pid = (await ask(pool))["pid"]
    session = await pool.getconn()
    await session.execute("BEGIN")
    await session.close()
    await pool.putconn(session)
    await pool.close()
    again = await kept_pool(coordinator_url)
    assert (await ask(again))["pid"] != pid
    await again.close()


async def test_a_session_that_the_server_has_ended_is_not_used_again(pg_url: str, coordinator_url: str) -> None:
    pool = await kept_pool(coordinator_url)
    pid = (await ask(pool))["pid"]
    await pool.close()
    with psycopg.connect(pg_url) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
    again = await kept_pool(coordinator_url)
    assert (await ask(again))["pid"] != pid
    await again.close()


async def test_a_reset_ends_all_sessions_except_the_kept_ones(servers: SessionServers, pg_major: int) -> None:
    server = servers.postgres(pg_major)
    url = server.migrated()
    pool = await kept_pool(url)
    pid = (await ask(pool))["pid"]
    await pool.close()
    with psycopg.connect(url) as left:
        server.take_back(url)
        with pytest.raises(psycopg.OperationalError):
            left.execute("SELECT 1")
    assert server.migrated() == url
    again = await kept_pool(url)
    assert (await ask(again))["pid"] == pid
    await again.close()
    server.drop(url)
