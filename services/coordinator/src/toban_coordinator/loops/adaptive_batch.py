"""Batches that cut themselves: a write that takes too long is halved, and a refused one is split until the bad item is alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from toban_store.errors import Refused, TooLong

T = TypeVar("T")
Write = Callable[[Sequence[T]], Awaitable[None]]


class Parts:
    """How many items fit into one transaction: learned from failures, at most `most`, at least `least`."""

    def __init__(self, most: int, *, least: int = 1) -> None:
        self._most = most
        self._least = least
        self.size = most

    def too_long(self, items: int) -> None:
        """So many items took too long: the next batch is half of it."""
        self.size = max(self._least, min(self.size, items) // 2)

    def fitted(self, items: int) -> None:
        """So many items fitted: a full batch makes the next one larger."""
        if items >= self.size:
            self.size = min(self._most, max(1, self.size * 2))

    async def each(self, items: Sequence[T], write: Write[T]) -> None:
        """Awaits `write(part)` for all of `items`, in order; raises TooLong when one item alone takes too long."""
        done = 0
        while done < len(items):
            part = items[done : done + max(1, self.size)]
            try:
                await write(part)
            except TooLong:
                self.too_long(len(part))
                if len(part) == 1:
                    raise
                continue
            self.fitted(len(part))
            done += len(part)


async def halve(items: Sequence[T], write: Write[T], alone: Callable[[T, Refused], Awaitable[None]]) -> None:
    """Awaits `write(items)`; while PostgreSQL refuses, halves of it; an item that is refused alone goes to `alone`."""
    if not items:
        return
    try:
        await write(items)
    except Refused as error:
        if len(items) == 1:
            await alone(items[0], error)
            return
        middle = len(items) // 2
        await halve(items[:middle], write, alone)
        await halve(items[middle:], write, alone)
