"""Registers an incarnation: again and again until a coordinator takes it or the process is asked to stop."""

import asyncio
from collections.abc import Awaitable, Callable

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.ports import Registered
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock

_log = get_logger(__name__)


async def join(
    register: Callable[[], Awaitable[Registered]], *, clock: Clock, stop: asyncio.Event, backoff: Backoff
) -> Registered | None:
    """The coordinator's answer; None when `stop` came first.

    Raises TobanError ALREADY_EXISTS when an earlier try has registered the incarnation and its answer, with the key, was lost.
    """
    attempt = 0
    while not stop.is_set():
        try:
            return await register()
        except TobanError as error:
            if error.code is ErrorCode.ALREADY_EXISTS:
                raise
            attempt += 1
            delay = backoff.delay(attempt)
            _log.warning("register failed", attempt=attempt, error=error.message, next_try_seconds=round(delay, 2))
            await _pause(clock, stop, delay)
    return None


async def _pause(clock: Clock, stop: asyncio.Event, seconds: float) -> None:
    waits = [asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(stop.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
