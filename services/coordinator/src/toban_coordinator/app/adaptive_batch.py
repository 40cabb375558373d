"""Batches that fit: a write that takes too long is halved, and a refused one is split until the bad item is alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from toban_store.errors import Refused, TooLong

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
Write = Callable[[Sequence[T]], Awaitable[None]]


class AdaptiveBatch:
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

    async def each(
        self,
        items: Sequence[T],
        write: Write[T],
        alone: Callable[[T, Refused | TooLong], Awaitable[None]] | None = None,
    ) -> None:
        """Awaits `write(part)` for all of `items`, in order; raises TooLong when one item alone takes too long.

        With `alone` a part that PostgreSQL refuses is split until the bad item is alone, which then goes there, as does one that alone takes
        too long; the others are written.
        """
        done = 0
        while done < len(items):
            part = items[done : done + max(1, self.size)]
            try:
                if alone is None:
                    await write(part)
                else:
                    await split_on_refusal(part, write, alone, refusals=(Refused,))
            except TooLong as error:
                self.too_long(len(part))
                if len(part) > 1:
                    continue
                if alone is None:
                    raise
                await alone(part[0], error)
            else:
                self.fitted(len(part))
            done += len(part)


async def split_on_refusal(
    items: Sequence[T],
    write: Write[T],
    alone: Callable[[T, E], Awaitable[None]],
    *,
    refusals: tuple[type[E], ...],
) -> None:
    """Awaits `write(items)`; on one of `refusals`, halves of it; an item that is refused alone goes to `alone`."""
    if not items:
        return
    try:
        await write(items)
    except refusals as error:
        if len(items) == 1:
            await alone(items[0], error)
            return
        middle = len(items) // 2
        await split_on_refusal(items[:middle], write, alone, refusals=refusals)
        await split_on_refusal(items[middle:], write, alone, refusals=refusals)
