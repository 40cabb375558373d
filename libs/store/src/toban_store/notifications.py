"""Wake-ups: a connection of its own that listens for NOTIFY and comes back by itself.

NOTIFY is a hint that travels with a commit; a listener has a tick as well. After each (re)connection the payload RECONNECTED comes, since
anything may have been missed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
from psycopg import sql

from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock
from toban_store.pool import SESSION, connect_arguments
from toban_store.sessions import Session, SessionGroup, server_of
from toban_store.tx import WAKE_CHANNEL

RECONNECTED = ""
"""The payload that says: connected (again), look at everything once."""
# Seconds of silence after which the connection is asked whether it still works, and how long it has to answer.
QUIET_SECONDS = 5.0
ANSWER_SECONDS = 1.0

_log = get_logger(__name__)


class Listener:
    """`async for payload in Listener(…)`: notifications of one channel, for as long as the iteration runs. Cancel the iteration to end it."""

    def __init__(self, url: str, *, application_name: str, clock: Clock, channel: str = WAKE_CHANNEL) -> None:
        # A listening session is idle by nature and runs no statement of ours but LISTEN and SELECT 1.
        self._connect = connect_arguments(url, application_name=application_name, session=SESSION)
        self._group = SessionGroup(
            name=application_name.removeprefix("toban/"),
            server=server_of(self._connect),
            at_most_seconds=ANSWER_SECONDS,
        )
        self._clock = clock
        self._channel = channel
        self._backoff = Backoff(base=0.1, cap=5.0)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Payloads in commit order; never ends by itself and raises nothing for a lost connection."""
        failures = 0
        while True:
            try:
                async with await Session.connect(**self._connect, group=self._group, autocommit=True) as connection:
                    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    failures = 0
                    yield RECONNECTED
                    async for payload in _payloads(connection):
                        yield payload
            except psycopg.Error as error:
                failures += 1
                wait = self._backoff.delay(failures)
                _log.warning("listening failed", attempt=failures, error=str(error), next_try_seconds=round(wait, 2))
                await self._clock.sleep(wait)


async def _payloads(connection: Session) -> AsyncIterator[str]:
    while True:
        # What is there; psycopg's own wait for more would look ten times a second.
        async for notification in connection.notifies(timeout=0):
            yield notification.payload
        if not await _readable(connection.fileno(), QUIET_SECONDS):
            await connection.execute("SELECT 1")


async def _readable(fileno: int, seconds: float) -> bool:
    """Waits until the socket has something to read; False after that many seconds of silence."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fileno, readable.set)
    try:
        async with asyncio.timeout(seconds):
            await readable.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fileno)
    return True
