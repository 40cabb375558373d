"""Connections to PostgreSQL: autocommit, rows as dicts, UTC, every wait bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_store.sessions import Session, SessionGroup, server_of

_connections = metrics.gauge(
    "toban_pool_connections",
    "Connections to PostgreSQL by pool and state: idle, used, and most (the limit).",
    ("pool", "state"),
)
_waiting = metrics.gauge("toban_pool_waiting", "Callers waiting for a connection.", ("pool",))
_requests = metrics.counter("toban_pool_requests_total", "Requests for a connection.", ("pool",))
_waits = metrics.counter(
    "toban_pool_wait_seconds_total", "Total time that callers have waited for a connection.", ("pool",)
)
_errors = metrics.counter(
    "toban_pool_errors_total",
    "Pool failures by kind: wait (no connection within the timeout), connect (connecting failed), lost (connection lost).",
    ("pool", "kind"),
)

_KINDS = {"wait": "requests_errors", "connect": "connections_errors", "lost": "connections_lost"}


class Measured(Protocol):
    """A pool that knows its figures."""

    name: str

    @property
    def max_size(self) -> int:
        """How many connections it may open."""

    def get_stats(self) -> Mapping[str, Any]:
        """Figures since it was opened; a missing one is 0."""


_pools: WeakKeyDictionary[Measured, dict[str, float]] = WeakKeyDictionary()


def show_pool_metrics(pool: Measured) -> None:
    """Show this pool for as long as it lives."""
    _pools[pool] = {}


def update_pool_metrics() -> None:
    """Bring the metrics up to date."""
    for pool, seen in tuple(_pools.items()):
        stats = pool.get_stats()
        name, idle = pool.name.removeprefix("toban/"), stats.get("pool_available", 0)
        _connections.labels(name, "idle").set(idle)
        _connections.labels(name, "used").set(max(0, stats.get("pool_size", 0) - idle))
        _connections.labels(name, "most").set(pool.max_size)
        _waiting.labels(name).set(stats.get("requests_waiting", 0))
        _requests.labels(name).inc(_grown(seen, stats, "requests_num"))
        _waits.labels(name).inc(_grown(seen, stats, "requests_wait_ms") / 1000)
        for kind, figure in _KINDS.items():
            _errors.labels(name, kind).inc(_grown(seen, stats, figure))


def _grown(seen: dict[str, float], stats: Mapping[str, Any], figure: str) -> float:
    value = float(stats.get(figure, 0))
    before, seen[figure] = seen.get(figure, 0.0), value
    return max(0.0, value - before)


metrics.on_scrape(update_pool_metrics)


class _LastFirst(deque[Session]):
    """What was appended last is the first from the left."""

    def append(self, session: Session, /) -> None:
        self.appendleft(session)


class Pool(AsyncConnectionPool[Session]):
    """Sessions with one database; `group` is what they share. `open_pool` makes one.

    The session that was used last is used next: its process of PostgreSQL has its caches and plans at hand, and those of a peak get idle and
    are closed. psycopg's own order takes turns among all.
    """

    def __init__(self, *, group: SessionGroup, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group = group
        self._pool = _LastFirst()

    async def _shrink_pool(self) -> None:
        # It closes the first from the left, one session in each `max_idle` seconds in which some were idle: here the one that is idle for longest.
        if self._nconns > self._min_size and self._nconns_min > 0:
            self._pool.rotate(1)
        await super()._shrink_pool()


# Session bounds; a fenced transaction narrows them further. client_connection_check_interval ends statements of a client that has gone.
SESSION = {
    "statement_timeout": "2s",
    "lock_timeout": "500ms",
    "idle_in_transaction_session_timeout": "500ms",
    "synchronous_commit": "on",
    "client_connection_check_interval": "500ms",
    "TimeZone": "UTC",
    "jit": "off",
    # Statements read the first rows of an index in its order. Without statistics, as in the first minute of a flood of runs, the planner would
    # take all rows by a bitmap and sort them, in every turn of the leader.
    "enable_bitmapscan": "off",
    # Plans are made while a table has a few pages, and are kept: by the default of 4 they would read the whole table of live runs for some ids,
    # also when a flood of runs, or an open snapshot, has made it large.
    "random_page_cost": "1.1",
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
        # A hot standby among several hosts is skipped.
        "target_session_attrs": "read-write",
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
    url: str,
    *,
    application_name: str,
    min_size: int,
    max_size: int,
    statement_ms: int | None = None,
    answer_seconds: float | None = None,
) -> Pool:
    """An open pool, which may not have a connection yet: it keeps trying while PostgreSQL is away. Close it with `await pool.close()`.

    Statements that repeat are prepared. A caller waits at most ACQUIRE_SECONDS for a connection. `statement_ms` bounds a statement, and its
    wait for a lock, more tightly than SESSION does. `answer_seconds` bounds the wait for an answer more tightly than the statement's bound
    and its margin do; a session that is silent for that long is closed.
    """
    bounds = {} if statement_ms is None else dict.fromkeys(("statement_timeout", "lock_timeout"), f"{statement_ms}ms")
    arguments = connect_arguments(url, application_name=application_name, session={**SESSION, **bounds})
    group = SessionGroup(
        name=application_name.removeprefix("toban/"), server=server_of(arguments), at_most_seconds=answer_seconds
    )
    pool = Pool(
        group=group,
        kwargs={
            **arguments,
            "group": group,
            "autocommit": True,
            "row_factory": dict_row,
            "prepare_threshold": 3,
        },
        connection_class=Session,
        min_size=min_size,
        max_size=max_size,
        timeout=ACQUIRE_SECONDS,
        reconnect_timeout=RECONNECT_SECONDS,
        configure=_configure,
        check=Session.check,
        open=False,
        name=application_name,
    )
    await pool.open(wait=False)
    show_pool_metrics(pool)
    return pool


async def _configure(session: Session) -> None:
    # A service has about a hundred statements, each sent in one shape only.
    session.prepared_max = 300
