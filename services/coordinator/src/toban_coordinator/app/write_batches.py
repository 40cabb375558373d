"""Writes that are collected while they are computed: few statements, none too large, and no transaction that waits long for its next one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from toban_runtime.clock import SystemClock
from toban_runtime.cooperative_yield import CooperativeYield

BATCH_ROWS = 500
# PostgreSQL ends a transaction that sends nothing for half a second; other work on the event loop takes its part of that.
BATCH_SECONDS = 0.1
_clock = SystemClock()

T = TypeVar("T")


class WriteBatches(Generic[T]):
    """Hands what is added to `write` in parts, and lets other tasks run in between; `close` writes the rest."""

    def __init__(self, write: Callable[[list[T]], Awaitable[None]]) -> None:
        self._write = write
        self._items: list[T] = []
        self._rows = 0
        self._pause = CooperativeYield(_clock)
        self._began = _clock.monotonic()

    async def add(self, item: T, rows: int = 1) -> None:
        """One more; `rows` says how much of a statement it is."""
        if self._items and self._rows + rows > BATCH_ROWS:
            await self.close()
        self._items.append(item)
        self._rows += rows
        if _clock.monotonic() - self._began > BATCH_SECONDS:
            await self.close()
        await self._pause.yield_if_due()

    async def close(self) -> None:
        """Writes what is left."""
        items, self._items, self._rows = self._items, [], 0
        if items:
            await self._write(items)
        self._began = _clock.monotonic()
