"""Long computations on the event loop yield in time, so that heartbeats and connections do not wait."""

import asyncio

from toban_runtime.clock import Clock

YIELD_SECONDS = 0.005


class CooperativeYield:
    """Lets other tasks run once `seconds` have passed since it last did; call `yield_if_due` between the steps of a long computation."""

    def __init__(self, clock: Clock, seconds: float = YIELD_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._last = clock.monotonic()

    async def yield_if_due(self) -> None:
        """Yields to the event loop when it is time, else returns at once."""
        if self._clock.monotonic() - self._last < self._seconds:
            return
        await asyncio.sleep(0)
        self._last = self._clock.monotonic()
