"""Group commit: what is submitted while a commit is under way goes into the next one, in the order of submission."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Bounds of one commit: items, and their total size; one item alone may be larger. After a commit of a size above 1 the next one waits
    `linger_seconds` for more items, so that submitters whose items come nearly together share one."""

    max_items: int
    max_size: float = float("inf")
    linger_seconds: float = 0.0


@dataclass(slots=True)
class _Waiting(Generic[T, R]):
    item: T
    size: float
    done: asyncio.Future[R]

    def complete(self, result: R | Exception) -> None:
        if self.done.done():
            return
        if not isinstance(result, Exception):
            self.done.set_result(result)
            return
        self.done.set_exception(result)
        # Marked as seen: its submitter may be cancelled before it awaits the future.
        self.done.exception()


class GroupCommit(Generic[T, R]):
    """Runs `commit(items)`, one call at a time: at once when idle, else when the call under way has ended.

    `commit` returns one result for each item, in their order. What it raises is raised to every submitter of that group;
    an exception in place of a result is raised to the submitter of that item alone.
    `size_of` weighs an item; `on_idle` is called when nothing waits any more. When the worker is cancelled, so is every submitter.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
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
        # Size of the last commit.
        self._last_size = 0.0

    async def submit(self, item: T) -> R:
        """The result of `item`, after its commit. Raises what `commit` raised. A caller that gives up does not withdraw its item."""
        return await self.enqueue(item)

    def enqueue(self, item: T) -> asyncio.Future[R]:
        """The future of `submit`, for callers that await it later. Its error needs no reader."""
        waiting: _Waiting[T, R] = _Waiting(item, self._size_of(item), asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._worker is None:
            self._worker = asyncio.create_task(self._drain(), name=self._name)
        return waiting.done

    async def close(self) -> None:
        """Cancels the commit under way and every submitter."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        # A worker that is cancelled before its first step has cancelled none.
        self._cancel(self._queue)
        self._worker = None

    async def _drain(self) -> None:
        group: list[_Waiting[T, R]] = []
        try:
            while self._queue:
                if self._last_size > 1 and self._limits.linger_seconds:
                    await asyncio.sleep(self._limits.linger_seconds)
                group = self._next_group()
                await self._commit_group(group)
        except BaseException:
            # Cancelled: without a result their submitters would wait for ever.
            self._cancel(group)
            self._cancel(self._queue)
            raise
        finally:
            self._worker = None
            self._on_idle()

    def _cancel(self, waiting: MutableSequence[_Waiting[T, R]]) -> None:
        for one in waiting:
            one.done.cancel()
        waiting.clear()

    def _next_group(self) -> list[_Waiting[T, R]]:
        """At least one item, then as many as fit."""
        group = [self._queue.popleft()]
        size = group[0].size
        while self._queue and len(group) < self._limits.max_items:
            size += self._queue[0].size
            if size > self._limits.max_size:
                break
            group.append(self._queue.popleft())
        self._last_size = sum(one.size for one in group)
        return group

    async def _commit_group(self, group: Sequence[_Waiting[T, R]]) -> None:
        results: Sequence[R | Exception]
        try:
            results = await self._commit([one.item for one in group])
            answered = list(zip(group, results, strict=True))
        except Exception as error:
            answered = [(one, error) for one in group]
        for one, result in answered:
            one.complete(result)
