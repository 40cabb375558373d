"""Sessions that are kept for the next test: a new one has to load the catalogue and to plan every statement again.

A kept session is as a new one, except that its prepared statements are still there. They are planned again, as other tests' tables are larger.
"""

from __future__ import annotations

import select
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from psycopg import pq
from psycopg._preparing import PrepareManager
from psycopg.abc import PQGenConn
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGconn

from toban_store import pool as pools
from toban_store.pool import Pool, open_pool
from toban_store.sessions import Session

_AS_NEW = b"CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD PLANS; RESET ROLE; RESET ALL"
# What a session has whose connection was kept.
_CLOSED = pq.PGconn.connect_start(b"port=none")
_CLOSED.finish()

# The idle ones by URL and options.
_idle: defaultdict[str, list[tuple[PGconn, PrepareManager]]] = defaultdict(list)


@contextmanager
def kept_sessions() -> Iterator[None]:
    """Pools that are opened meanwhile keep their sessions: for databases of a PostgresTestServer, closed before it takes theirs back."""
    with mock.patch.object(pools, "Session", KeptSession):
        yield


async def kept_pool(url: str, *, max_size: int = 8) -> Pool:
    """As `open_pool`, with kept sessions. The first one is there: a pool that is asked before then opens a second one."""
    with kept_sessions():
        pool = await open_pool(url, application_name="test", min_size=1, max_size=max_size)
        await pool.wait(pools.ACQUIRE_SECONDS)
    return pool


class KeptSession(Session):
    """A session that is kept when it is closed in good order."""

    _conninfo = ""

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[KeptSession]:
        session = None
        while session is None and (idle := _idle[conninfo]):
            pgconn, prepared = idle.pop()
            if _in_order(pgconn):
                session = cls(pgconn)
                session._prepared = prepared
            else:
                pgconn.finish()
        session = session or (yield from super()._connect_gen(conninfo))
        session._conninfo = conninfo
        return session

    async def close(self) -> None:
        """As psycopg's."""
        if self.closed or not _in_order(self.pgconn):
            await super().close()
            return
        pgconn, self.pgconn, self._closed = self.pgconn, _CLOSED, True
        if pgconn.exec_(_AS_NEW).status == pq.ExecStatus.COMMAND_OK:
            _idle[self._conninfo].append((pgconn, self._prepared))
        else:
            pgconn.finish()


def kept_pids(database: str) -> list[int]:
    """The server's processes of the idle sessions with this database."""
    return [pgconn.backend_pid for key in _keys(database) for pgconn, _ in _idle[key]]


def end_kept(database: str) -> None:
    """Ends the idle sessions with this database."""
    for key in _keys(database):
        for pgconn, _ in _idle.pop(key):
            pgconn.finish()


def _keys(database: str) -> list[str]:
    return [key for key in list(_idle) if conninfo_to_dict(key)["dbname"] == database]


def _in_order(pgconn: PGconn) -> bool:
    """Whether a connection is between two transactions, and the server has not ended it."""
    if pgconn.transaction_status != pq.TransactionStatus.IDLE:
        return False
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    return not poll.poll(0)
