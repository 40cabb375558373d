"""A loop: the same idempotent work again and again, woken by a signal and by a tick."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock

LOG_EVERY_SECONDS = 5.0
"""A loop that keeps failing is logged at its first failure and then at most this often."""
FIRST_RETRY_SECONDS = 0.05

_log = get_logger(__name__)
_turns = metrics.counter("toban_loop_turns_total", "Turns of a loop by result (ok, error).", ("loop", "result"))
_seconds = metrics.histogram("toban_loop_turn_seconds", "Duration of one turn of a loop.", ("loop",))
_failed = metrics.gauge("toban_loop_failures_in_row", "Consecutive failed turns of a loop.", ("loop",))
_under_way = metrics.gauge(
    "toban_loop_turn_age_seconds", "Age of the running turn of a loop; 0 between turns.", ("loop",)
)
_running: "set[Loop]" = set()
# When the first loop of each clock first went to sleep: the common origin of their ticks.
_origins: WeakKeyDictionary[Clock, float] = WeakKeyDictionary()


def _set_gauges() -> None:
    """Both gauges of the loops that run now: a turn that hangs never gets into a histogram."""
    _failed.clear()
    _under_way.clear()
    for loop in tuple(_running):
        _failed.labels(loop.name).set(loop.failures)
        _under_way.labels(loop.name).set(loop.turn_age_seconds)


metrics.on_scrape(_set_gauges)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """One finished turn, passed to `on_turn`. `error` is None when it went well; `number` counts from 1."""

    loop: str
    number: int
    error: Exception | None
    result: Any = None


class WakeRegistry:
    """Wakes what is registered under a name, such as loops by the names of notifications."""

    def __init__(self) -> None:
        self._wake: dict[str, Callable[[], None]] = {}

    def register(self, name: str, wake: Callable[[], None]) -> None:
        """`wake` is called for `name` from now on, in place of what was registered before."""
        self._wake[name] = wake

    def unregister(self, name: str, wake: Callable[[], None]) -> None:
        """`wake` is not called any more; what another caller has registered for `name` since then stays."""
        if self._wake.get(name) == wake:
            del self._wake[name]

    def has(self, name: str) -> bool:
        """Whether something is registered under `name`."""
        return name in self._wake

    def wake(self, name: str) -> None:
        """Wakes `name`, if it is registered; "" wakes all, since anything may have been missed."""
        for registered, wake in tuple(self._wake.items()):
            if name in ("", registered):
                wake()


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
        on_turn: Callable[[TurnResult], None] | None = None,
    ) -> None:
        self.name = name
        self.turns = 0
        self._tick = tick_seconds
        self._run_once = run_once
        self._clock = clock
        self._on_turn = on_turn
        self._woken = asyncio.Event()
        self._failures = 0
        self._retry_in = 0.0
        self._suppressed = 0
        self._logged_at: float | None = None
        self._began: float | None = None

    @property
    def failures(self) -> int:
        """Turns that failed since the last one that did not."""
        return self._failures

    @property
    def turn_age_seconds(self) -> float:
        """For how long the present turn lasts; 0 between turns."""
        return 0.0 if self._began is None else max(0.0, self._clock.monotonic() - self._began)

    @property
    def tick_seconds(self) -> float:
        """The longest time between two turns."""
        return self._tick() if callable(self._tick) else self._tick

    def idle_seconds(self) -> float:
        """How long the loop sleeps when nothing wakes it: up to the next multiple of its tick. Loops of one clock tick at common instants, so
        that a process with many loops has few wake-ups."""
        now = self._clock.monotonic()
        tick = self.tick_seconds
        return tick - (now - _origins.setdefault(self._clock, now)) % tick

    def wake(self) -> None:
        """Ask for a turn as soon as the current one ends; many calls make one turn."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Turn until `stop` is set; a turn under way is finished first. Cancellation ends it at once."""
        stopped = asyncio.ensure_future(stop.wait())
        stopped.add_done_callback(self._wake_up)
        _running.add(self)
        try:
            while not stop.is_set():
                self._woken.clear()
                await self._turn()
                await self._pause(stopped)
        finally:
            _running.discard(self)
            stopped.cancel()

    async def _turn(self) -> None:
        self._began = started = self._clock.monotonic()
        error: Exception | None = None
        result: Any = None
        try:
            result = await self._run_once()
        except Exception as caught:
            error = caught
        finally:
            self._began = None
        _seconds.labels(self.name).observe(max(0.0, self._clock.monotonic() - started))
        _turns.labels(self.name, "error" if error else "ok").inc()
        self.turns += 1
        self._note(error)
        if self._on_turn:
            self._on_turn(TurnResult(loop=self.name, number=self.turns, error=error, result=result))

    def _note(self, error: Exception | None) -> None:
        if error is None:
            if self._failures:
                _log.info("loop recovered", loop=self.name, failed_turns=self._failures)
            self._failures, self._suppressed, self._logged_at = 0, 0, None
            return
        self._failures += 1
        self._retry_in = self._backoff().delay(self._failures)
        now = self._clock.monotonic()
        if self._logged_at is not None and now - self._logged_at < LOG_EVERY_SECONDS:
            self._suppressed += 1
            return
        _log.error(
            "loop turn failed",
            loop=self.name,
            attempt=self._failures,
            next_try_seconds=round(self._retry_in, 3),
            not_logged=self._suppressed,
            exc_info=error,
        )
        self._logged_at, self._suppressed = now, 0

    def _backoff(self) -> Backoff:
        return Backoff(base=min(FIRST_RETRY_SECONDS, self.tick_seconds), cap=self.tick_seconds)

    async def _pause(self, stopped: "asyncio.Future[Any]") -> None:
        """Until the next turn is due: a wake-up or the tick; after a failure the backoff alone."""
        if self._failures:
            # Wake-ups do not shorten this: a storm of signals over a broken database must not spin.
            nap = asyncio.ensure_future(self._clock.sleep(self._retry_in))
            try:
                await asyncio.wait([stopped, nap], return_when=asyncio.FIRST_COMPLETED)
            finally:
                nap.cancel()
        elif self._woken.is_set():
            # A loop that is woken without end must still let others run.
            await asyncio.sleep(0)
        else:
            tick = asyncio.ensure_future(self._clock.sleep(self.idle_seconds()))
            tick.add_done_callback(self._wake_up)
            try:
                await self._woken.wait()
            finally:
                tick.cancel()

    def _wake_up(self, ended: "asyncio.Future[Any]") -> None:
        """The tick is over, or the stop event is set."""
        if not ended.cancelled():
            self._woken.set()
