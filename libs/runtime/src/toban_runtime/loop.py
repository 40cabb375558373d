"""A loop: the same idempotent work again and again, woken by a signal and by a tick."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock

LOG_EVERY_SECONDS = 5.0
"""A loop that keeps failing is logged at its first failure and then at most this often."""
FIRST_RETRY_SECONDS = 0.05

_log = get_logger(__name__)
_turns = metrics.counter("toban_loop_turns_total", "Turns of a loop by result (ok, error).", ("loop", "result"))
_seconds = metrics.histogram("toban_loop_turn_seconds", "Time of one turn of a loop.", ("loop",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One finished turn: what `on_turn` hears. `error` is None when it went well; `number` counts from 1."""

    loop: str
    number: int
    error: Exception | None
    result: Any = None


class Loop:
    """Runs `run_once` when woken and at each tick until stopped.

    `run_once` takes no input, is idempotent and does not retry inside: the next turn is the retry. An exception is logged and
    counted and never ends the loop; after one, turns come by backoff up to the tick, whatever wakes the loop.
    A tick that may change is given as a function; who changes it wakes the loop.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[Any]],
        tick_seconds: float | Callable[[], float],
        clock: Clock,
        *,
        on_turn: Callable[[Turn], None] | None = None,
    ) -> None:
        self.name = name
        self.turns = 0
        self._tick = tick_seconds
        self._run_once = run_once
        self._clock = clock
        self._on_turn = on_turn
        self._woken = asyncio.Event()
        self._failures = 0
        self._suppressed = 0
        self._logged_at: float | None = None

    @property
    def tick_seconds(self) -> float:
        """The longest time between two turns."""
        return self._tick() if callable(self._tick) else self._tick

    def wake(self) -> None:
        """Ask for a turn as soon as the current one ends; many calls make one turn."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Turn until `stop` is set; a turn under way is finished first. Cancellation ends it at once."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self._woken.clear()
                await self._turn()
                await self._pause(stopped)
        finally:
            stopped.cancel()

    async def _turn(self) -> None:
        started = self._clock.monotonic()
        error: Exception | None = None
        result: Any = None
        try:
            result = await self._run_once()
        except Exception as caught:
            error = caught
        _seconds.labels(self.name).observe(max(0.0, self._clock.monotonic() - started))
        _turns.labels(self.name, "error" if error else "ok").inc()
        self.turns += 1
        self._note(error)
        if self._on_turn:
            self._on_turn(Turn(loop=self.name, number=self.turns, error=error, result=result))

    def _note(self, error: Exception | None) -> None:
        if error is None:
            if self._failures:
                _log.info("loop works again", loop=self.name, failed_turns=self._failures)
            self._failures, self._suppressed, self._logged_at = 0, 0, None
            return
        self._failures += 1
        now = self._clock.monotonic()
        if self._logged_at is not None and now - self._logged_at < LOG_EVERY_SECONDS:
            self._suppressed += 1
            return
        _log.error(
            "loop turn failed",
            loop=self.name,
            attempt=self._failures,
            next_try_seconds=round(self._backoff().delay(self._failures), 3),
            not_logged=self._suppressed,
            exc_info=error,
        )
        self._logged_at, self._suppressed = now, 0

    def _backoff(self) -> Backoff:
        return Backoff(base=min(FIRST_RETRY_SECONDS, self.tick_seconds), cap=self.tick_seconds, jitter=0.0)

    async def _pause(self, stopped: "asyncio.Future[Any]") -> None:
        """Until the next turn is due: a wake-up or the tick; after a failure the backoff alone."""
        if self._failures:
            # Wake-ups do not shorten this: a storm of signals over a broken database must not spin.
            await self._first_of(self._clock.sleep(self._backoff().delay(self._failures)), stopped=stopped)
        elif self._woken.is_set():
            # A loop that is woken without end must still let others run.
            await asyncio.sleep(0)
        else:
            await self._first_of(self._clock.sleep(self.tick_seconds), self._woken.wait(), stopped=stopped)

    @staticmethod
    async def _first_of(*waits: Coroutine[Any, Any, Any], stopped: "asyncio.Future[Any]") -> None:
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
