"""Group commit: what is submitted while a commit is under way goes into the next one, in the order of submission."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Bounds of one commit: items, and their total size; one item alone may be larger."""

    max_items: int
    max_size: float = float("inf")


@dataclass(slots=True)
class _Waiting(Generic[T, R]):
    item: T
    size: float
    done: asyncio.Future[R]


class GroupCommit(Generic[T, R]):
    """Runs `commit(items)`, one call at a time: at once when idle, else when the call under way has ended.

    `commit` returns one result for each item, in their order. What it raises is raised to every submitter of that group.
    `size_of` weighs an item; `on_idle` is called when nothing waits any more. When the worker is cancelled, so is every submitter.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        limits: GroupLimits,
        size_of: Callable[[T], float] = lambda _item: 1,
        on_idle: Callable[[], None] = lambda: None,
        name: str = "group commit",
    ) -> None:
        self._commit = commit
        self._limits = limits
        self._size_of = size_of
        self._on_idle = on_idle
        self._name = name
        self._queue: deque[_Waiting[T, R]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """The result of `item`, after its commit. Raises what `commit` raised. A caller that gives up does not withdraw its item."""
        waiting: _Waiting[T, R] = _Waiting(item, self._size_of(item), asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._worker is None:
            self._worker = asyncio.create_task(self._drain(), name=self._name)
        return await waiting.done

    async def _drain(self) -> None:
        group: list[_Waiting[T, R]] = []
        try:
            while self._queue:
                group = self._next_group()
                await self._commit_group(group)
        except BaseException:
            # Cancelled: without a result their submitters would wait for ever.
            for one in (*group, *self._queue):
                one.done.cancel()
            self._queue.clear()
            raise
        finally:
            self._worker = None
            self._on_idle()

    def _next_group(self) -> list[_Waiting[T, R]]:
        """At least one item, then as many as fit."""
        group = [self._queue.popleft()]
        size = group[0].size
        while self._queue and len(group) < self._limits.max_items:
            size += self._queue[0].size
            if size > self._limits.max_size:
                break
            group.append(self._queue.popleft())
        return group

    async def _commit_group(self, group: Sequence[_Waiting[T, R]]) -> None:
        try:
            results = await self._commit([one.item for one in group])
            answered = list(zip(group, results, strict=True))
        except Exception as error:
            for one in group:
                if not one.done.done():
                    one.done.set_exception(error)
                    # Marked as seen: its submitter may be cancelled before it awaits the future.
                    one.done.exception()
            return
        for one, result in answered:
            if not one.done.done():
                one.done.set_result(result)
