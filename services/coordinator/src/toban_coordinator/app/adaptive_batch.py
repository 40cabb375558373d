"""Batches that fit: a write that takes too long is halved, and a refused one is split until the bad item is alone.

An item is too slow only by PostgreSQL's own word, alone and several times: on a starved machine everything takes long now and then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from toban_store.errors import DidNotHappen, Refused, TooLong

# How often PostgreSQL has to be at work on one item for too long, and how many tries this process gets for it.
ALONE_STRIKES = 3
ALONE_TRIES = 6
# A full batch that fitted makes the next one larger by one of so many parts; one that did not fit is halved.
GROWTH = 8
T = TypeVar("T")
E = TypeVar("E", bound=Exception)
F = TypeVar("F", bound=DidNotHappen)
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
        """So many items fitted: a full batch makes the next one a little larger, so that few of those that follow do not fit."""
        if items >= self.size:
            self.size = min(self._most, self.size + max(1, self.size // GROWTH))

    async def each(
        self,
        items: Sequence[T],
        write: Write[T],
        alone: Callable[[T, Refused | TooLong], Awaitable[None]] | None = None,
    ) -> None:
        """Awaits `write(part)` for all of `items`, in order; raises TooLong when one item alone takes too long.

        With `alone` a part that PostgreSQL refuses is split until the bad item is alone, which then goes there, as does one that alone takes
        too long again and again; the others are written. Raises TooLong as well when this process is too slow for one item.
        """
        done = 0
        while done < len(items):
            part = items[done : done + max(1, self.size)]
            try:
                if alone is None:
                    await write(part)
                else:
                    await split_on_refusal(part, write, alone, refusals=(Refused,))
            except TooLong:
                self.too_long(len(part))
                if len(part) > 1:
                    continue
                if alone is None:
                    raise
                bad: Refused | TooLong | None
                try:
                    bad = await write_alone(part[0], write, faults=TooLong)
                except Refused as refused:
                    bad = refused
                if bad is not None:
                    await alone(part[0], bad)
            else:
                self.fitted(len(part))
            done += len(part)


async def write_alone(item: T, write: Write[T], *, faults: type[F]) -> F | None:
    """Writes one item by itself, after one of `faults`; None when it was written, else the last error that blames it.

    Raises TooLong when it is this process that is slow: that is no fault of the item, and the turn has to come again.
    """
    strikes = 0
    for tries in range(1, ALONE_TRIES + 1):
        try:
            await write([item])
        except faults as error:
            strikes += error.by_server if isinstance(error, TooLong) else 1
            if strikes == ALONE_STRIKES:
                return error
            if tries == ALONE_TRIES:
                raise
        else:
            break
    return None


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
