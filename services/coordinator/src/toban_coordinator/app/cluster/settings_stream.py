"""WatchSettings: the settings now and on each change, for executors and log-archivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from toban_coordinator.ports.settings import SettingsSource
from toban_domain.settings import Settings


class SettingsStreams:
    """Every open stream of this process; `stop` ends them, so that callers go to another coordinator at once."""

    def __init__(self, *, source: SettingsSource) -> None:
        self._source = source
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """This process ends."""
        self._stopped.set()

    async def watch(self) -> AsyncIterator[Settings]:
        """The settings as soon as they have been read from PostgreSQL, and after each change; ends by `stop`."""
        seen: Settings | None = None
        while (changed := await self._next(seen)) is not None:
            seen = changed
            yield changed

    async def _next(self, seen: Settings | None) -> Settings | None:
        change = asyncio.ensure_future(self._source.wait_other_than(seen))
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((change, stopped), return_when=asyncio.FIRST_COMPLETED)
            return None if self._stopped.is_set() else change.result()
        finally:
            change.cancel()
            stopped.cancel()
