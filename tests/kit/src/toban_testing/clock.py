"""A clock that advances only when the test advances it."""

import asyncio
import heapq
import threading
from datetime import UTC, date, datetime, timedelta
from itertools import count

START = datetime(2030, 1, 1, tzinfo=UTC)
# How often `advance` yields to other tasks after a wake-up, so that they complete their work before later wake-ups.
SETTLE_ROUNDS = 20


def today(*, left: float = 60.0) -> date:
    """The day in UTC, which goes on for `left` seconds at least: near its end this waits for the next one.

    For a test whose code takes the day from the clock of this machine or of PostgreSQL.
    """
    while True:
        now = datetime.now(UTC)  # noqa: TID251 (the clock of the code under test)
        rest = (datetime.combine(now + timedelta(days=1), datetime.min.time(), UTC) - now).total_seconds()
        if rest > left:
            return now.date()
        threading.Event().wait(rest)


class FakeClock:
    """Implements `toban_runtime.clock.Clock`. All three clocks move together, by `advance` only."""

    def __init__(self, *, start: datetime = START, boottime: float = 1_000.0) -> None:
        self._start = start
        self._boot_start = boottime
        self._elapsed = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed

    def boottime(self) -> float:
        """Seconds since the simulated boot; advances with `monotonic`."""
        return self._boot_start + self._elapsed

    def wall(self) -> datetime:
        """Start plus what `advance` added, in UTC."""
        return self._start + timedelta(seconds=self._elapsed)

    async def sleep(self, seconds: float) -> None:
        """Sleeps until `advance` has passed the time; yields once for zero or less, and for less than the clock can represent."""
        # A time that does not lie after now would be due at once, for ever again in a loop.
        if self._elapsed + seconds <= self._elapsed:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), future))
        await future

    @property
    def sleepers(self) -> int:
        """Number of sleeping tasks."""
        return sum(1 for _, _, future in self._sleepers if not future.done())

    async def advance(self, seconds: float) -> None:
        """Moves the clock, waking sleepers one by one in the order of their times.

        A task that sleeps again within the span is woken again within it.
        """
        await self._settle()
        target = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, due)
            if not future.done():
                future.set_result(None)
                await self._settle()
        self._elapsed = target
        await self._settle()

    def jump_wall(self, seconds: float) -> None:
        """Steps only the wall clock, as an operator or NTP would."""
        self._start += timedelta(seconds=seconds)

    async def _settle(self) -> None:
        for _ in range(SETTLE_ROUNDS):
            await asyncio.sleep(0)
