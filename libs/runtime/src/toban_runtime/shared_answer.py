"""One answer for many callers: those that ask while it is made wait for it, and it is kept for some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from toban_runtime.clock import Clock

T = TypeVar("T")


class _Kept(NamedTuple, Generic[T]):
    answer: T
    begun_at: float
    seconds: float


class SharedAnswer(Generic[T]):
    """`make` gives the answer; its errors go to those who wait, and the next caller tries again.

    `keep`: the seconds that making took → for how long the answer is kept, from when making it began. With `serve_old` it is still given for as
    long again, while the next one is made, so that regular callers never wait.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[T]],
        clock: Clock,
        *,
        keep: Callable[[float], float],
        serve_old: bool = False,
    ) -> None:
        self._make = make
        self._clock = clock
        self._keep = keep
        self._serve_old = serve_old
        self._kept: _Kept[T] | None = None
        self._making: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The answer. Raises what `make` raises. When a caller is cancelled, the others still get theirs."""
        if (kept := self._kept) is not None:
            age = self._clock.monotonic() - kept.begun_at
            if age < kept.seconds:
                return kept.answer
            if self._serve_old and age < 2 * kept.seconds:
                self._renew()
                return kept.answer
        return await asyncio.shield(self._renew())

    def _renew(self) -> asyncio.Task[T]:
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._made(), name="shared answer")
            self._making.add_done_callback(_mark_retrieved)
        return self._making

    async def _made(self) -> T:
        begun_at = self._clock.monotonic()
        answer = await self._make()
        self._kept = _Kept(answer, begun_at, self._keep(self._clock.monotonic() - begun_at))
        return answer


def _mark_retrieved(task: asyncio.Task[T]) -> None:
    """Callers that wait raise the error themselves; without any, asyncio would log it as never retrieved."""
    if not task.cancelled():
        task.exception()
