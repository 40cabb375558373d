"""Transactions: `tx` for any process, `fenced_tx` for the leader (docs/fencing.md 3.3), `autocommit` for single statements.

A function that writes as leader takes a `Fenced`; only `fenced_tx` and `fenced_statement` make one, so forgetting the fence is a type
error. The fence is a share lock on the leader row, taken before any other: a take-over waits for the commit, and a transaction that
comes after a take-over finds no row and raises FencedOut before it has written anything.

Every wait is bounded (toban_store.sessions): a session that gives no answer is closed, its place in the pool is free again, and the error is
OutcomeUnknown when a COMMIT or a lone statement was under way, DidNotHappen otherwise.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from toban_domain.epoch import Term
from toban_domain.errors import ErrorCode, FencedOut
from toban_store.errors import DidNotHappen, StoreError, TooLong, sort_error
from toban_store.pool import Pool
from toban_store.queries import fragment
from toban_store.sessions import CANCEL_SECONDS, MARGIN_SECONDS, Session

WAKE_CHANNEL = "toban_wake"
# A statement, or its wait for a lock, ends before its transaction does: what PostgreSQL needs for it is told apart from what this process needs.
FENCED_STATEMENT_MS = 180
# transaction_timeout exists from this version on; before it, each statement and each pause are bounded, and the whole is checked before COMMIT.
_TRANSACTION_TIMEOUT_SINCE = 170_000
# read_only_sql_transaction
_READ_ONLY = "25006"

# One text with the statements that bring their own fence.
_FENCE = fragment("fence")

Row = dict[str, Any]
Params = Mapping[str, Any]

_KEY = object()
# libpq begins each failed attempt with the address, which is no business of a caller.
_PREFIX = re.compile(r"^(connection failed: )?connection to server at .*? failed: ")


class Tx:
    """A transaction under way. Errors come as toban_store.errors; after one, leave the block: the transaction is gone."""

    def __init__(
        self, key: object, connection: Session, *, lone: bool = False, answer_seconds: float | None = None
    ) -> None:
        if key is not _KEY:
            raise TypeError(f"{type(self).__name__} is made by tx, fenced_tx and autocommit only")
        self._connection = connection
        self._lone = lone
        # None: the bound of the session.
        self._answer_seconds = answer_seconds

    async def fetch_all(self, sql: str, params: Params | None = None, *, prepare: bool | None = None) -> list[Row]:
        """All rows of a statement. `prepare` False plans it for these parameters, also when it repeats."""
        return await (await self._run(sql, params, prepare)).fetchall()

    async def fetch_one(self, sql: str, params: Params | None = None) -> Row | None:
        """The first row of a statement, or None."""
        return await (await self._run(sql, params)).fetchone()

    async def execute(self, sql: str, params: Params | None = None, *, prepare: bool | None = None) -> int:
        """The number of rows that a statement wrote (or found). `prepare` as for `fetch_all`."""
        return (await self._run(sql, params, prepare)).rowcount

    async def notify(self, payload: str, *, channel: str = WAKE_CHANNEL) -> None:
        """Wakes every listener with `payload` (a loop's name) when this transaction commits; equal payloads of one transaction are one."""
        params = {"channel": channel, "payload": payload}
        await self._run("SELECT pg_notify(%(channel)s::text, %(payload)s::text)", params)

    async def allow_seconds(self, seconds: float) -> None:
        """Gives each statement that follows in this transaction, and each pause between them, that long."""
        limit = {"limit": f"{round(seconds * 1000)}ms"}
        await self._run(
            "SELECT set_config('statement_timeout', %(limit)s::text, true),"
            " set_config('idle_in_transaction_session_timeout', %(limit)s::text, true)",
            limit,
        )
        self._answer_seconds = seconds + MARGIN_SECONDS

    async def _run(self, sql: str, params: Params | None, prepare: bool | None = None) -> psycopg.AsyncCursor[Row]:
        try:
            with self._connection.within(self._answer_seconds):
                return await self._connection.execute(sql, params, prepare=prepare)
        except psycopg.Error as error:
            if error.sqlstate == _READ_ONLY:
                # The server was demoted under this session; a new one is made with a primary.
                await self._connection.close()
            raise sort_error(error, committing=self._lone) from error


class Fenced(Tx):
    """What a function that writes as leader of `term` takes: a FencedTx, or a FencedStatement for a statement that brings its own fence."""

    def __init__(
        self,
        key: object,
        connection: Session,
        term: Term,
        *,
        lone: bool = False,
        answer_seconds: float | None = None,
    ) -> None:
        super().__init__(key, connection, lone=lone, answer_seconds=answer_seconds)
        self.term = term

    async def fetch_fenced(self, sql: str, params: Params) -> list[Row]:
        """The rows of a statement whose every part joins its CTE `fence` (fragment `fence` of the package, with its parameters).

        The statement answers at least one row while the fence holds. Raises FencedOut when it answers none.
        """
        fence = {
            "fence_epoch": self.term.epoch,
            "fence_timeline": self.term.timeline,
            "fence_system_id": self.term.system_id,
        }
        rows = await self.fetch_all(sql, {**params, **fence})
        if not rows:
            raise FencedOut(self.term.epoch)
        return rows


class FencedTx(Fenced):
    """A transaction that holds the fence of `term`: until it ends, no other coordinator can take over. Its bound is that of `fenced_tx`."""


class FencedStatement(Fenced):
    """One statement as leader of `term`, a transaction by itself: only `fetch_fenced` is meant for it."""


@asynccontextmanager
async def autocommit(pool: Pool) -> AsyncIterator[Tx]:
    """Lone statements, each its own transaction: one round trip each. A write whose connection breaks raises OutcomeUnknown."""
    async with _connection(pool) as connection:
        yield Tx(_KEY, connection, lone=True)


@asynccontextmanager
async def tx(pool: Pool) -> AsyncIterator[Tx]:
    """A transaction (READ COMMITTED) that commits at the end of the block and rolls back on any exception."""
    async with _connection(pool) as connection:
        await _begin(connection, "BEGIN")
        async with _ending(connection):
            yield Tx(_KEY, connection)


@asynccontextmanager
async def fenced_tx(pool: Pool, term: Term, *, first: str = "") -> AsyncIterator[FencedTx]:
    """A transaction as leader of `term`. Raises FencedOut when the leader row has another epoch, or this is not the term's cluster.

    It lasts at most FENCED_MS, or FENCED_MOST_MS while this process is slow, else TooLong: cut larger work. BEGIN, the bounds, `first` (a
    statement without parameters, such as a lock) and the fence travel as one message.
    """
    loop = asyncio.get_running_loop()
    async with _connection(pool) as connection:
        _check_database(term, connection)
        # Read once: others of this process change it meanwhile, and the server holds this transaction to what it began with.
        pace, limit, started = pool.group.pace, pool.group.pace.milliseconds, loop.time()
        try:
            found = await _begin(connection, _opening(term, connection.info.server_version, limit, first))
            async with _ending(connection):
                if not found:
                    raise FencedOut(term.epoch)
                yield FencedTx(_KEY, connection, term, answer_seconds=limit / 1000 + MARGIN_SECONDS)
                if loop.time() - started > limit / 1000:
                    raise TooLong(
                        ErrorCode.DEADLINE_EXCEEDED,
                        f"a fenced transaction took longer than {limit} ms: cut the work",
                    )
        except TooLong as error:
            if not error.by_server:
                pace.too_long()
            raise
        pace.ended_after(loop.time() - started)


@asynccontextmanager
async def fenced_statement(pool: Pool, term: Term) -> AsyncIterator[FencedStatement]:
    """One fenced statement in one round trip. `pool` bounds its statements by FENCED_MS (open_pool's `statement_ms`)."""
    async with _connection(pool) as connection:
        _check_database(term, connection)
        yield FencedStatement(_KEY, connection, term, lone=True)


def _check_database(term: Term, connection: Session) -> None:
    """Raises FencedOut for another database of the term's server, which took its name: a backup that was restored there has the same epoch. A
    session never changes its database, so this need not be in the statement. 0: not known."""
    if term.database not in (0, connection.database):
        raise FencedOut(term.epoch)


def _opening(term: Term, server_version: int, milliseconds: int, first: str) -> str:
    """BEGIN, the bounds, `first`, the fence."""
    bounds = dict.fromkeys(("statement_timeout", "lock_timeout"), FENCED_STATEMENT_MS)
    bounds["idle_in_transaction_session_timeout"] = milliseconds
    if server_version >= _TRANSACTION_TIMEOUT_SINCE:
        bounds["transaction_timeout"] = milliseconds
    limits = "".join(f"SET LOCAL {name} = {bound};" for name, bound in bounds.items())
    # Interpolated, as integers, because one message of several statements cannot have parameters.
    fence = _FENCE % {
        "fence_epoch": int(term.epoch),
        "fence_timeline": int(term.timeline),
        "fence_system_id": f"'{int(term.system_id)}'",
    }
    return f"BEGIN; {limits} {first + ';' if first else ''} {fence}"


@asynccontextmanager
async def _connection(pool: Pool) -> AsyncIterator[Session]:
    task = asyncio.current_task()
    cancels = task.cancelling() if task else 0
    try:
        connection = await pool.getconn()
    except PoolTimeout as error:
        raise _no_connection(pool, error) from error
    except (PoolClosed, psycopg.Error) as error:
        raise sort_error(error, committing=False) from error
    try:
        if task and task.cancelling() > cancels:
            # The pool can lose a cancellation that arrives together with the connection (psycopg#1345); the task
            # would then go on to commit, and a caller that waits for its end would wait for ever.
            raise asyncio.CancelledError
        yield connection
    finally:
        # A cancellation in here would lose the connection to the pool.
        await asyncio.shield(pool.putconn(connection))


def _no_connection(pool: Pool, error: PoolTimeout) -> StoreError:
    why = pool.group.connect_error
    if not why:
        return sort_error(error, committing=False)
    text = f"cannot connect to PostgreSQL: {_PREFIX.sub('', why)}"
    if "session is read-only" in why:
        text += (
            "; no host of SCHEDULER_DATABASE_URL accepts writes: name the primary, "
            "or accept a standby with target_session_attrs=any in the URL"
        )
    return DidNotHappen(ErrorCode.UNAVAILABLE, text)


async def _begin(connection: Session, opening: str) -> bool:
    """Sends the opening; whether its last statement found a row."""
    try:
        cursor = await connection.execute(opening)
        await cursor.set_result(-1)
        return cursor.rowcount > 0
    except BaseException as error:
        await _roll_back(connection)
        if isinstance(error, psycopg.Error):
            raise sort_error(error, committing=False) from error
        raise


@asynccontextmanager
async def _ending(connection: Session) -> AsyncIterator[None]:
    """Commits after the block, or rolls back on any exception, a cancellation included."""
    try:
        yield
    except BaseException:
        await _roll_back(connection)
        raise
    try:
        cursor = await connection.execute("COMMIT")
    except psycopg.Error as error:
        raise sort_error(error, committing=True) from error
    except BaseException:
        # Cancelled while the commit is under way: the pool must not hand this connection on.
        await connection.close()
        raise
    if cursor.statusmessage != "COMMIT":
        # PostgreSQL answers ROLLBACK, without an error, when a statement had failed and its error was swallowed.
        raise DidNotHappen(ErrorCode.INTERNAL, "a statement of this transaction had failed, so nothing was committed")


async def _roll_back(connection: Session) -> None:
    with suppress(psycopg.Error), connection.within(CANCEL_SECONDS):
        await connection.execute("ROLLBACK")
        return
    await connection.close()
