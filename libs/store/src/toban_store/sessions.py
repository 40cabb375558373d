"""Sessions with PostgreSQL whose every wait is bounded: one that gives no answer is closed, never left to hang.

A session can hang while its TCP peer lives: a proxy acknowledges bytes and forwards none, or the server's host stands still. TCP keepalives
and the timeouts of the server see nothing of that, so the client bounds each wait itself.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.rows import DictRow, tuple_row

from toban_observability import metrics
from toban_observability.logs import get_logger

# A fenced transaction holds up every take-over, so it may last this long and no longer.
FENCED_MS = 200
# A process that is itself too slow for that, on a starved machine, gets up to twice as long: less than a take-over waits for the lock.
FENCED_MOST_MS = 400
# How long the client waits beyond the time after which the server itself ends a statement.
MARGIN_SECONDS = 1.0
# How long a cancelled statement, or a rollback, may take to end.
CANCEL_SECONDS = 1.0
# How long an idle session has to answer after another one hung.
PING_SECONDS = 0.5
DEFAULT_STATEMENT_SECONDS = 2.0
_INTERVAL = re.compile(r"(\d+)\s*(ms|s|min|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

# The bound of statements, and which cluster this is, as schema `scheduler` reads it too; a standby has no timeline of its own.
_ABOUT = """
SELECT current_setting('statement_timeout'),
       CASE WHEN pg_is_in_recovery() THEN ''
            ELSE (SELECT system_identifier::text FROM pg_control_system())
                 || ':' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
       END,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database())
"""

RV = TypeVar("RV")
_log = get_logger(__name__)
_closed = metrics.counter(
    "toban_pool_sessions_hung_total",
    "Sessions with PostgreSQL that were closed because no answer came within their bound.",
    ("pool",),
)


class SessionHung(psycopg.OperationalError):
    """No answer came within the bound; the session is closed. What was sent may have been carried out."""


@dataclass(slots=True)
class Server:
    """What this process knows of the server behind one URL.

    `hung_at` is when one of its sessions hung last, seconds of the event loop's clock: older ones may hang as well. `cluster` is the system
    identifier and timeline of the newest session: the others are of a server that was replaced when they have another one.
    """

    hung_at: float = float("-inf")
    cluster: str = ""


_servers: dict[tuple[str, ...], Server] = {}


def server_of(arguments: Mapping[str, Any]) -> Server:
    """The server that these arguments of `connect` lead to; all pools of a process share one."""
    key = tuple(str(arguments.get(name, "")) for name in ("host", "hostaddr", "port", "dbname"))
    return _servers.setdefault(key, Server())


@dataclass(slots=True)
class Pace:
    """How long a fenced transaction of this process may last, from FENCED_MS to FENCED_MOST_MS, as the process itself can follow."""

    milliseconds: int = field(default_factory=lambda: FENCED_MS)

    def too_long(self) -> None:
        """One ended at its bound, and not because PostgreSQL was at work: the next one gets longer."""
        self.milliseconds = min(FENCED_MOST_MS, self.milliseconds * 2)

    def ended_after(self, seconds: float) -> None:
        """One was committed; when it was quick, the process is not slow any more."""
        if seconds * 1000 < FENCED_MS / 2:
            self.milliseconds = FENCED_MS


@dataclass(slots=True, kw_only=True)
class SessionGroup:
    """What the sessions of one pool share. `at_most_seconds` bounds their waits more tightly than the server's `statement_timeout` does.

    `connect_error` is why the last attempt to connect failed; empty after one that did not.
    """

    name: str
    server: Server
    at_most_seconds: float | None = None
    connect_error: str = ""
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        # A series that begins with its first event has no increase, and an alert looks at it.
        _closed.labels(self.name)


class Session(AsyncConnection[DictRow]):
    """A connection that closes itself when PostgreSQL does not answer in time; the statement raises SessionHung then.

    `connect` takes `group` besides psycopg's arguments.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The oid of its database, which never changes; the name may be given to another one.
        self.database = 0
        self._name = ""
        self._server = Server()
        self._cluster = ""
        self._answer_seconds = DEFAULT_STATEMENT_SECONDS + MARGIN_SECONDS
        self._bound: asyncio.TimerHandle | None = None
        self._hung = False
        self._answered_at = asyncio.get_running_loop().time()

    @classmethod
    async def connect(cls, conninfo: str = "", *, group: SessionGroup, **kwargs: Any) -> Session:  # type: ignore[override]
        """A session of `group`, with the bound that follows from the server's `statement_timeout`. Raises psycopg.Error."""
        try:
            session: Session = await super().connect(conninfo, **kwargs)
        except psycopg.Error as error:
            group.connect_error = " ".join(str(error).split())
            raise
        try:
            await session._join(group)
        except BaseException:
            await session.close()
            raise
        return session

    async def _join(self, group: SessionGroup) -> None:
        self._name, self._server = group.name, group.server
        most = group.at_most_seconds or float("inf")
        self._answer_seconds = min(self._answer_seconds, most)
        async with self.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(_ABOUT)
            row = await cursor.fetchone()
        if row is None:
            raise psycopg.OperationalError("no answer about the server")
        self._answer_seconds = min(statement_seconds(row[0]) + MARGIN_SECONDS, most)
        self._cluster = self._server.cluster = row[1]
        self.database = int(row[2])
        group.connect_error = ""

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Bounds each wait inside the block by `seconds`; None leaves it as it is."""
        before = self._answer_seconds
        self._answer_seconds = before if seconds is None else seconds
        try:
            yield
        finally:
            self._answer_seconds = before

    async def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """As psycopg's: every exchange with the server passes here. Raises SessionHung."""
        self._start_bound(self._answer_seconds)
        try:
            result = await super().wait(gen, *args, **kwargs)
        except psycopg.OperationalError as error:
            if self._hung:
                raise SessionHung("no answer in time; the session was closed") from error
            raise
        finally:
            self._end_bound()
        self._answered_at = asyncio.get_running_loop().time()
        return result

    async def cancel_safe(self, *, timeout: float = CANCEL_SECONDS) -> None:
        """As psycopg's, which calls this when the task that waits is cancelled; the wait for the statement's end gets as short a bound."""
        self._start_bound(CANCEL_SECONDS)
        await super().cancel_safe(timeout=min(timeout, CANCEL_SECONDS))

    async def check(self) -> None:
        """Asks the server when this session may be dead; else costs no round trip. Raises psycopg.Error when it is.

        An idle session whose socket is readable has been closed by the server, or got a notice. After a session with the same server hung,
        each of the others is asked once. A session with a server that was replaced is closed.
        """
        if self._cluster != self._server.cluster:
            await self.close()
            raise psycopg.OperationalError("another server has replaced the one of this session")
        if self._answered_at <= self._server.hung_at:
            with self.within(PING_SECONDS):
                await self.execute("")
        elif _readable(self.pgconn.socket):
            await self.execute("")

    def _start_bound(self, seconds: float) -> None:
        self._end_bound()
        self._bound = asyncio.get_running_loop().call_later(seconds, self._on_bound, seconds)

    def _end_bound(self) -> None:
        if self._bound is not None:
            self._bound.cancel()
            self._bound = None

    def _on_bound(self, seconds: float) -> None:
        if self.closed:
            return
        if _readable(self.pgconn.socket):
            # The server answers; it is this process that was busy.
            self._start_bound(seconds)
            return
        self._hung = True
        self._server.hung_at = asyncio.get_running_loop().time()
        _closed.labels(self._name).inc()
        _log.warning("PostgreSQL session hung: closed", pool=self._name, waited_seconds=round(seconds, 2))
        # The task that waits for the socket wakes up with an error. Closing the descriptor here would leave that task waiting for another file.
        with socket.fromfd(self.pgconn.socket, socket.AF_INET, socket.SOCK_STREAM) as shared:
            try:
                shared.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the peer has just closed it: that wakes the waiter as well


def statement_seconds(value: str) -> float:
    """A `statement_timeout` as PostgreSQL shows it, in seconds; the default of this program's sessions for 0, which means no limit."""
    match = _INTERVAL.fullmatch(value.strip())
    seconds = float(match[1]) * _UNITS[match[2] or "ms"] if match else 0.0
    return seconds or DEFAULT_STATEMENT_SECONDS


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
