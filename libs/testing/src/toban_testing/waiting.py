"""Waiting for what nothing tells the test: another process's files and rows, another thread's state.

Where the code under test can tell, use `signals` instead. The bound only ends a test that would hang: no test means it.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from toban_runtime.clock import SystemClock

T = TypeVar("T")

CLOCK = SystemClock()
BOUND_SECONDS = 60.0
POLL_SECONDS = 0.01


def wait_for(condition: Callable[[], T], seconds: float = BOUND_SECONDS) -> T:
    """The first true value of `condition`; AssertionError when there is none within `seconds`."""
    end, pause = CLOCK.monotonic() + seconds, threading.Event()
    while not (found := condition()):
        assert CLOCK.monotonic() < end, f"not within {seconds:g} s"
        pause.wait(POLL_SECONDS)
    return found


async def until(condition: Callable[[], T], seconds: float = BOUND_SECONDS) -> T:
    """As `wait_for`, while the loop's other tasks go on."""
    end = CLOCK.monotonic() + seconds
    while not (found := condition()):
        assert CLOCK.monotonic() < end, f"not within {seconds:g} s"
        await asyncio.sleep(POLL_SECONDS)
    return found


async def until_async(
    ask: Callable[[], Awaitable[T]], wanted: Callable[[T], object] = bool, seconds: float = BOUND_SECONDS
) -> T:
    """The first answer that is `wanted`, where asking is awaited; TimeoutError when there is none within `seconds`."""
    async with asyncio.timeout(seconds):
        while not wanted(found := await ask()):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
    return found
