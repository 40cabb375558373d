"""The fence, the bounds of a fenced transaction, and the sorting of write errors."""

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from toban_domain.epoch import Term
from toban_domain.errors import ErrorCode
from toban_store import migrate, sessions
from toban_store.errors import DidNotHappen, FencedOut, OutcomeUnknown, Refused, TooLong, Unsuitable, sort_error
from toban_store.pool import Pool, open_pool
from toban_store.tx import FencedTx, Tx, autocommit, fenced_statement, fenced_tx, tx
from toban_testing.waiting import until_async, until_lock_wait

pytestmark = pytest.mark.pg_versions

SETTING = "INSERT INTO scheduler.settings (name, value) VALUES (%(name)s::text, '1')"
TAKE_OVER = "UPDATE scheduler.leader SET epoch = epoch + (1 << 27) WHERE id = 1 AND epoch = %(epoch)s::bigint"


async def settings(pool: Pool) -> list[str]:
    async with tx(pool) as t:
        return [row["name"] for row in await t.fetch_all("SELECT name FROM scheduler.settings ORDER BY name")]


async def until_a_client_waits(pool: Pool) -> None:
    async with autocommit(pool) as t:
        await until_lock_wait(t.fetch_all)


async def take_over(pool: Pool, term: Term) -> None:
    async with tx(pool) as t:
        assert await t.execute(TAKE_OVER, {"epoch": term.epoch}) == 1


async def test_fenced_write_commits(pg_major: int, pool: Pool, term: Term) -> None:
    async with fenced_tx(pool, term) as t:
        assert isinstance(t, Tx)
        assert t.term is term
        assert await t.execute(SETTING, {"name": "a"}) == 1
    assert await settings(pool) == ["a"]


async def test_another_database_of_the_server_is_fenced_out_although_its_epoch_is_the_same(
    pg_major: int, pool: Pool, term: Term, pg_empty_url: str
) -> None:
    """A backup that was restored beside the original, and has its name since: same server, timeline and epoch."""
    migrate.up(pg_empty_url)
    restored = await open_pool(pg_empty_url, application_name="toban-test", min_size=1, max_size=1)
    try:
        async with pool.connection() as connection:
            mine = replace(term, database=connection.database)
        async with tx(restored) as t:
            await t.execute("UPDATE scheduler.leader SET epoch = %(epoch)s::bigint", {"epoch": term.epoch})
        async with fenced_tx(pool, mine) as t:
            await t.execute(SETTING, {"name": "a"})
        with pytest.raises(FencedOut):
            async with fenced_tx(restored, mine) as t:
                await t.execute(SETTING, {"name": "a"})
        with pytest.raises(FencedOut):
            async with fenced_statement(restored, mine) as s:
                await s.fetch_fenced("SELECT 1", {})
        assert await settings(restored) == []
    finally:
        await restored.close()


async def test_take_over_waits_for_the_commit(pg_major: int, pool: Pool, term: Term) -> None:
    async with fenced_tx(pool, term) as t:
        other = asyncio.create_task(take_over(pool, term))
        await until_a_client_waits(pool)
        assert not other.done()
        await t.execute(SETTING, {"name": "before"})
    await other
    assert await settings(pool) == ["before"]


@pytest.mark.seed(3)
async def test_write_that_waits_behind_a_take_over_is_fenced_out(pg_major: int, pool: Pool, term: Term) -> None:
    async def late() -> None:
        async with fenced_tx(pool, term) as t:
            await t.execute(SETTING, {"name": "late"})

    async with tx(pool) as t:
        await t.execute(TAKE_OVER, {"epoch": term.epoch})
        writer = asyncio.create_task(late())
        await until_a_client_waits(pool)
    with pytest.raises(FencedOut):
        await writer
    assert await settings(pool) == []


@pytest.mark.seed(31)
@pytest.mark.parametrize("change", [{"epoch": 7}, {"timeline": 99}, {"system_id": "1"}])
async def test_another_epoch_or_cluster_is_fenced_out(
    pg_major: int, pool: Pool, term: Term, change: dict[str, int]
) -> None:
    with pytest.raises(FencedOut):
        async with fenced_tx(pool, replace(term, **change)):
            raise AssertionError("the block must not run")


async def test_fenced_transactions_do_not_wait_for_each_other(pg_major: int, pool: Pool, term: Term) -> None:
    async with fenced_tx(pool, term) as one, fenced_tx(pool, term) as two:
        await one.execute(SETTING, {"name": "one"})
        await two.execute(SETTING, {"name": "two"})
    assert await settings(pool) == ["one", "two"]


async def test_a_transaction_cannot_be_made_by_hand(pg_major: int, pool: Pool, term: Term) -> None:
    async with pool.connection() as connection:
        with pytest.raises(TypeError):
            FencedTx(object(), connection, term)
        with pytest.raises(TypeError):
            Tx(object(), connection)


async def test_an_exception_rolls_back(pg_major: int, pool: Pool) -> None:
    with pytest.raises(KeyError):
        async with tx(pool) as t:
            await t.execute(SETTING, {"name": "a"})
            raise KeyError
    assert await settings(pool) == []


async def test_a_cancelled_transaction_rolls_back(pg_major: int, pool: Pool) -> None:
    """Cancelled at many points: before, in and between statements. None would ever commit by itself."""

    async def endless() -> None:
        async with tx(pool) as t:
            await t.execute(SETTING, {"name": "a"})
            await t.execute("SELECT pg_sleep(60)")

    for turns in range(0, 30, 3):
        tasks = [asyncio.create_task(endless()) for _ in range(6)]
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        await end(tasks)
        assert all(task.cancelled() or isinstance(task.exception(), DidNotHappen) for task in tasks)
    assert await settings(pool) == []


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    _, pending = await asyncio.wait(tasks, timeout=60)
    assert not pending


async def test_no_cancellation_and_no_connection_is_lost_under_contention(pg_major: int, pool: Pool) -> None:
    """Tasks that wait for a connection are cancelled while connections are handed around."""

    async def for_ever() -> None:
        while True:
            async with tx(pool) as t:
                await t.fetch_one("SELECT 1 AS one")

    for turn in range(30):
        tasks = [asyncio.create_task(for_ever()) for _ in range(8)]
        await asyncio.sleep(0.003 + turn * 0.0001)
        await end(tasks)
    async with tx(pool), tx(pool), tx(pool), tx(pool):
        assert pool.get_stats()["pool_available"] == 0


async def test_a_refused_row_names_its_constraint(pg_major: int, pool: Pool) -> None:
    with pytest.raises(Refused) as caught:
        async with tx(pool) as t:
            await t.execute(SETTING, {"name": "a"})
            await t.execute(SETTING, {"name": "a"})
    assert caught.value.constraint == "settings_pkey"
    assert await settings(pool) == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT no_such_column FROM scheduler.settings",
        "INSERT INTO scheduler.no_such_table VALUES (1)",
        "INSERT INTO scheduler.job_events (at, run_id, type) VALUES ('1999-01-01', 1, 'x')",
    ],
)
async def test_what_the_database_lacks_is_no_refusal_of_the_data(pg_major: int, pool: Pool, statement: str) -> None:
    with pytest.raises(Unsuitable) as caught:
        async with tx(pool) as t:
            await t.execute(statement)
    assert not isinstance(caught.value, Refused)
    missing_partition = "job_events" in statement
    assert caught.value.lacks_partition is missing_partition
    assert caught.value.code is (ErrorCode.UNAVAILABLE if missing_partition else ErrorCode.INTERNAL)


@pytest.mark.parametrize(
    "statement",
    [
        # A rule with a name, and a trigger that names neither table nor rule.
        "UPDATE scheduler.leader SET epoch = -1",
        "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END $$",
    ],
)
async def test_a_check_that_fails_is_a_refusal_of_the_data(pg_major: int, pool: Pool, statement: str) -> None:
    with pytest.raises(Refused):
        async with tx(pool) as t:
            await t.execute(statement)


async def test_a_swallowed_error_does_not_pass_for_a_commit(pg_major: int, pool: Pool) -> None:
    with pytest.raises(DidNotHappen):
        async with tx(pool) as t:
            await t.execute(SETTING, {"name": "a"})
            with pytest.raises(Refused):
                await t.execute(SETTING, {"name": "a"})


@pytest.mark.usefixtures("production_bounds")
@pytest.mark.seed(208)
async def test_a_slow_statement_of_a_fenced_transaction_ends(pg_major: int, pool: Pool, term: Term) -> None:
    with pytest.raises(TooLong):
        async with fenced_tx(pool, term) as t:
            await t.execute("SELECT pg_sleep(5)")


@pytest.mark.usefixtures("production_bounds")
async def test_many_short_statements_do_not_add_up_past_the_bound(pg_major: int, pool: Pool, term: Term) -> None:
    with pytest.raises(TooLong):
        async with fenced_tx(pool, term) as t:
            await t.execute(SETTING, {"name": "a"})
            for _ in range(4):
                await t.execute("SELECT pg_sleep(0.08)")
    assert await settings(pool) == []


@pytest.mark.usefixtures("production_bounds")
async def test_a_process_that_is_slow_gets_longer_until_it_is_quick_again(
    pg_major: int, pool: Pool, term: Term, at_most: Any
) -> None:
    """A starved leader would else never finish a transaction; what PostgreSQL works at for too long is bounded as ever."""

    async def pause(seconds: float) -> None:
        async with fenced_tx(pool, term) as t:
            await t.execute("SELECT 1")
            await asyncio.sleep(seconds)
            await t.execute(SETTING, {"name": "paused"})

    with pytest.raises(TooLong) as caught:
        await pause(0.25)
    assert not caught.value.by_server
    assert pool.group.pace.milliseconds == 400
    # It has come to this; where other processes load the machine, 150 ms beside the pause would be too few.
    pool.group.pace.milliseconds = longer = round(at_most(0.4) * 1000)
    await pause(0.25)
    with pytest.raises(TooLong) as caught:
        async with fenced_tx(pool, term) as t:
            await t.execute("SELECT pg_sleep(0.3)")
    assert caught.value.by_server
    assert pool.group.pace.milliseconds == longer
    pool.group.pace.ended_after(0.05)
    with pytest.raises(TooLong):
        await pause(0.25)
    assert len(await settings(pool)) == 1


async def test_a_transaction_keeps_the_bound_that_it_began_with(
    pg_major: int, pool: Pool, term: Term, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one of the process that was quick shortens the bound of those that begin after it, and of no other."""
    monkeypatch.setattr(sessions, "FENCED_MS", 200)
    pool.group.pace.milliseconds = 20_000
    async with fenced_tx(pool, term) as t:
        await t.execute(SETTING, {"name": "a"})
        pool.group.pace.ended_after(0.0)
        assert pool.group.pace.milliseconds == 200
        await asyncio.sleep(0.25)
    assert await settings(pool) == ["a"]


@pytest.mark.usefixtures("production_bounds")
async def test_a_paused_fenced_transaction_lets_the_take_over_pass(pg_major: int, pool: Pool, term: Term) -> None:
    with pytest.raises(TooLong):
        async with fenced_tx(pool, term) as t:
            await t.execute(SETTING, {"name": "a"})
            await asyncio.create_task(take_over(pool, term))
    assert await settings(pool) == []


@pytest.mark.usefixtures("production_bounds")
async def test_the_bounds_end_with_the_transaction(pg_major: int, pg_url: str, term: Term) -> None:
    alone = await open_pool(pg_url, application_name="toban-test-one", min_size=1, max_size=1)
    async with fenced_tx(alone, term) as t:
        inside = await t.fetch_one("SELECT current_setting('statement_timeout') AS v")
    async with tx(alone) as t2:
        after = await t2.fetch_one("SELECT current_setting('statement_timeout') AS v")
    await alone.close()
    assert (inside, after) == ({"v": "180ms"}, {"v": "2s"})


@pytest.mark.usefixtures("production_bounds")
async def test_a_transaction_that_waits_for_something_else_is_ended(pg_major: int, pool: Pool) -> None:
    with pytest.raises(TooLong, match="idle-in-transaction timeout"):
        async with tx(pool) as t:
            await t.execute(SETTING, {"name": "a"})
            mine = await t.fetch_one("SELECT pg_backend_pid() AS pid")

            async def ended() -> bool:
                async with autocommit(pool) as other:
                    return not await other.fetch_all("SELECT FROM pg_stat_activity WHERE pid = %(pid)s::int", mine)

            await until_async(ended)
            await t.execute(SETTING, {"name": "b"})
    assert await settings(pool) == []


async def test_a_connection_killed_before_commit_did_not_happen(pg_major: int, pool: Pool) -> None:
    with pytest.raises(DidNotHappen) as caught:
        async with tx(pool) as t:
            await t.execute(SETTING, {"name": "a"})
            await t.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert await settings(pool) == []


async def test_a_connection_killed_at_commit_is_unknown(pg_major: int, pool: Pool) -> None:
    with pytest.raises(OutcomeUnknown):
        async with tx(pool) as t:
            row = await t.fetch_one("SELECT pg_backend_pid() AS pid")
            assert row is not None
            async with tx(pool) as killer:
                await killer.execute("SELECT pg_terminate_backend(%(pid)s::int, 1000)", row)
    assert await settings(pool) == []


async def test_a_lone_statement_whose_connection_breaks_is_unknown(pg_major: int, pool: Pool) -> None:
    with pytest.raises(OutcomeUnknown):
        async with autocommit(pool) as t:
            await t.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def test_the_pool_notices_connections_that_the_server_closed(pg_major: int, pool: Pool) -> None:
    async with tx(pool), tx(pool), tx(pool):
        pass
    async with autocommit(pool) as t:
        await t.execute(
            "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    for _ in range(8):
        async with tx(pool) as t2:
            await t2.fetch_one("SELECT 1 AS one")


@pytest.mark.usefixtures("production_bounds")
async def test_no_server_is_an_error_within_seconds(free_port: int, at_most: Any) -> None:
    absent = await open_pool(
        f"postgresql://nobody@127.0.0.1:{free_port}/none", application_name="toban-test", min_size=1, max_size=1
    )
    with pytest.raises(DidNotHappen) as caught:
        async with asyncio.timeout(at_most(4)), tx(absent):
            raise AssertionError("the block must not run")
    await absent.close()
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_a_statement_that_is_wrong_is_internal() -> None:
    assert sort_error(psycopg.errors.UndefinedTable("x"), committing=False).code is ErrorCode.INTERNAL
