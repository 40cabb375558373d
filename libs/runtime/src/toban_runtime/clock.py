"""The only place that reads a clock. Everything else takes a `Clock`, or `now` as an argument."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Three clocks and an interruptible sleep; tests and the simulation bring their own."""

    def monotonic(self) -> float:
        """Seconds since an unknown start; stands still while the machine is suspended."""
        ...

    def boottime(self) -> float:
        """Seconds since boot, suspend included: lease deadlines are kept on this one."""
        ...

    def wall(self) -> datetime:
        """The wall clock, in UTC and aware of it; for people and for lease checks, never for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; ends early only by cancellation."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC in seconds."""
        return time.monotonic()

    def boottime(self) -> float:
        """CLOCK_BOOTTIME in seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """asyncio.sleep; a time in the past yields once."""
        # Imported here: small synchronous processes read these clocks, too.
        import asyncio

        await asyncio.sleep(max(0.0, seconds))
