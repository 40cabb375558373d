"""Polls state that emits no signal: files and rows of another process, attributes that another thread sets.

Use `signals` where the code under test can emit one. The timeouts are safety nets against a test that hangs; no test asserts them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from toban_stack.wait import wait_until

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.01
LOCK_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def wait_for(condition: Callable[[], T], seconds: float = TIMEOUT_SECONDS) -> T:
    """The first true value of `condition`. Raises AssertionError after `seconds`."""
    value = wait_until(condition, seconds, POLL_SECONDS)
    assert value, f"not within {seconds:g} s"
    return value


async def until(condition: Callable[[], T], seconds: float = TIMEOUT_SECONDS) -> T:
    """As `wait_for`, while other tasks of the event loop run. Raises TimeoutError after `seconds`."""

    async def call() -> T:
        return condition()

    return await until_async(call, seconds=seconds)


async def until_async(
    call: Callable[[], Awaitable[T]], wanted: Callable[[T], object] = bool, seconds: float = TIMEOUT_SECONDS
) -> T:
    """The first result of the coroutine function `call` that `wanted` accepts. Raises TimeoutError after `seconds`, also within a call."""
    async with asyncio.timeout(seconds):
        while not wanted(value := await call()):  # noqa: ASYNC110 (nothing signals the change)
            await asyncio.sleep(POLL_SECONDS)
    return value


async def until_lock_wait(sql: Callable[[str], Awaitable[Any]]) -> None:
    """Until a session of the database waits for a lock; `sql` runs a statement there and returns its rows."""
    await until_async(lambda: sql(LOCK_WAITS))
