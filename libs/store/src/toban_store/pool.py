"""Connections to PostgreSQL: autocommit, rows as dicts, UTC, every wait bounded."""

from __future__ import annotations

import select
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from toban_domain.errors import ErrorCode, TobanError
from toban_store import pool_metrics

Connection = AsyncConnection[DictRow]
Pool = AsyncConnectionPool[Connection]

# Session bounds; a fenced transaction narrows them further. client_connection_check_interval ends statements of a client that has gone.
SESSION = {
    "statement_timeout": "2s",
    "lock_timeout": "500ms",
    "idle_in_transaction_session_timeout": "500ms",
    "synchronous_commit": "on",
    "client_connection_check_interval": "500ms",
    "TimeZone": "UTC",
    "jit": "off",
}
# Seconds that a caller waits for a free connection, and that one attempt to connect may take.
ACQUIRE_SECONDS = 2.0
CONNECT_SECONDS = 2
# Milliseconds that sent bytes may stay unacknowledged before the connection counts as lost.
TCP_USER_TIMEOUT_MS = 2000
# A pool that cannot connect goes on trying for as long as the process lives.
RECONNECT_SECONDS = 10.0


def connect_arguments(url: str, *, application_name: str, session: dict[str, str] | None = None) -> dict[str, Any]:
    """Keyword arguments of psycopg's `connect` for `url`; `options` that the URL brings stay and win.

    Raises TobanError CONFIG_INVALID for what is no URL.
    """
    given = _parsed(url)
    options = " ".join(f"-c {name}={value}" for name, value in (SESSION if session is None else session).items())
    defaults = {
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": TCP_USER_TIMEOUT_MS,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
    }
    merged: dict[str, Any] = {**defaults, **given, "application_name": application_name}
    merged["options"] = f"{options} {given.get('options') or ''}".strip()
    return merged


def _parsed(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # libpq's message repeats the text, password and all: neither it nor its cause is shown.
        raise TobanError(
            ErrorCode.CONFIG_INVALID,
            "SCHEDULER_DATABASE_URL: PostgreSQL's library cannot read it (its value is not shown); "
            "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for special characters",
        ) from None


async def open_pool(
    url: str, *, application_name: str, min_size: int, max_size: int, statement_ms: int | None = None
) -> Pool:
    """An open pool, which may not have a connection yet: it keeps trying while PostgreSQL is away. Close it with `await pool.close()`.

    Statements that repeat are prepared. A caller waits at most ACQUIRE_SECONDS for a connection. `statement_ms` bounds a statement, and its
    wait for a lock, more tightly than SESSION does.
    """
    bounds = {} if statement_ms is None else dict.fromkeys(("statement_timeout", "lock_timeout"), f"{statement_ms}ms")
    pool: Pool = AsyncConnectionPool(
        kwargs={
            **connect_arguments(url, application_name=application_name, session={**SESSION, **bounds}),
            "autocommit": True,
            "row_factory": dict_row,
            "prepare_threshold": 3,
        },
        connection_class=Connection,
        min_size=min_size,
        max_size=max_size,
        timeout=ACQUIRE_SECONDS,
        reconnect_timeout=RECONNECT_SECONDS,
        configure=_configure,
        check=_check,
        open=False,
        name=application_name,
    )
    await pool.open(wait=False)
    pool_metrics.watch(pool)
    return pool


async def _configure(connection: Connection) -> None:
    # A service has about a hundred statements, each sent in one shape only.
    connection.prepared_max = 300


async def _check(connection: Connection) -> None:
    """Costs no round trip for a quiet connection: an idle one whose socket is readable has been closed by the server, or got a notice."""
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    if poll.poll(0):
        await AsyncConnectionPool.check_connection(connection)
