"""WatchChanges: one look a second at the tables for all who watch, and none while there is no watcher."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from toban_coordinator.decide.cluster.changes import ALL, Changes, Look, changes
from toban_coordinator.store.cluster import changes as store
from toban_domain.errors import TobanError
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.pool import Pool
from toban_store.tx import autocommit

LOOK_SECONDS = 1.0
# For the first look.
FIRST_SECONDS = 3.0
# A watcher that receives nothing for longer than this has lost its connection.
SILENT_SECONDS = 10.0
# Changes that a slow watcher can still be told one by one.
KEPT = 60

_log = get_logger(__name__)
_looks = metrics.counter("toban_change_feed_looks_total", "Reads of what changed, for the open pages of the sites.")


class ChangeFeed:
    """Every open stream of this process; `stop` ends them, so that callers go to another coordinator at once."""

    def __init__(self, *, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._kept: deque[tuple[int, Changes]] = deque(maxlen=KEPT)
        self._number = 0
        self._watchers = 0
        self._more = asyncio.Event()
        self._stopped = False
        self._looking: asyncio.Task[None] | None = None
        # The tables were read since there is a watcher.
        self._looked = asyncio.Event()

    async def stop(self) -> None:
        """This process ends."""
        self._stopped = True
        self._more.set()
        if self._looking is not None:
            self._looking.cancel()
            await self.idle()

    async def idle(self) -> None:
        """When the last look that was under way without a watcher has ended."""
        if self._looking is not None:
            await asyncio.gather(self._looking, return_exceptions=True)

    async def watch(self) -> AsyncIterator[Changes]:
        """What changes from now on; empty as soon as the tables were read, and when nothing has changed for SILENT_SECONDS.

        It ends when they cannot be read: another coordinator may.
        """
        self._watchers += 1
        if self._looking is None or self._looking.done():
            self._looked.clear()
            self._looking = asyncio.ensure_future(self._look())
        try:
            # What the caller reads after the first answer is compared with this look, or is newer.
            await self._wait(self._looked, FIRST_SECONDS)
            seen = self._number
            if self._looked.is_set():
                yield Changes()
            while self._looked.is_set() and not self._stopped:
                if self._number == seen:
                    await self._wait(self._more, SILENT_SECONDS)
                number = self._number
                if not self._stopped:
                    yield self._since(seen)
                seen = number
        finally:
            self._watchers -= 1

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        """Until the event, or for so long."""
        happens = asyncio.ensure_future(event.wait())
        passes = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((happens, passes), return_when=asyncio.FIRST_COMPLETED)
        finally:
            happens.cancel()
            passes.cancel()

    def _since(self, seen: int) -> Changes:
        if self._number - seen > len(self._kept):
            return ALL
        found = Changes()
        for number, one in self._kept:
            if number > seen:
                found = found.plus(one)
        return found

    async def _look(self) -> None:
        before: Look | None = None
        while self._watchers and not self._stopped:
            try:
                async with autocommit(self._pool) as t:
                    now = await store.look(t)
                if before is not None and (found := changes(before, now)):
                    self._publish(found)
                before = now
                _looks.inc()
                self._looked.set()
            except TobanError as error:
                # The next look finds what has changed meanwhile.
                _log.debug("no look at what changed", error=error.message)
            await self._clock.sleep(LOOK_SECONDS)

    def _publish(self, found: Changes) -> None:
        self._number += 1
        self._kept.append((self._number, found))
        self._more.set()
        self._more = asyncio.Event()
