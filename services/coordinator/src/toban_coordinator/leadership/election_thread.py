"""A thread with an event loop of its own: what must be quick does not wait for what keeps the main loop busy (docs/fencing.md 3.1)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

JOIN_SECONDS = 2.0
T = TypeVar("T")


class ElectionThread:
    """Runs coroutines and callbacks of other threads on its loop. What is opened there is used and closed there.

    The interpreter hands its lock over every few milliseconds, so a main loop that computes delays this one by no more than that a step.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="election", daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which runs in the thread; cancelling this cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Calls `callback` in the thread, after what was posted before; nothing once the thread has stopped."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    async def stop(self) -> None:
        """Cancels what still runs there and ends the thread."""
        self.post(self._loop.stop)
        await asyncio.to_thread(self._thread.join, JOIN_SECONDS)

    def _serve(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            loop.close()
