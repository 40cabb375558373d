"""Which executors take orders from this leader: one that it cannot reach gets no new work, whatever its heartbeats to others say."""

from __future__ import annotations

from dataclasses import dataclass

from toban_runtime.clock import Clock

# No new work for this time after an order that was not delivered, seconds; doubled with each further one, up to the second figure.
AVOID_SECONDS = 5.0
AVOID_MOST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Failed:
    until: float
    wait: float


class Reachability:
    """What the last order to each incarnation said. Times are this machine's monotonic clock."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, _Failed] = {}

    def answered(self, incarnation: str) -> None:
        """An order was answered."""
        self._failed.pop(incarnation, None)

    def failed(self, incarnation: str) -> None:
        """An order was not delivered. Failures while it is avoided already only keep it avoided."""
        now, last = self._clock.monotonic(), self._failed.get(incarnation)
        wait = AVOID_SECONDS
        if last is not None:
            wait = last.wait if now < last.until else min(AVOID_MOST_SECONDS, 2 * last.wait)
        self._failed[incarnation] = _Failed(now + wait, wait)

    def lost(self, incarnation: str) -> bool:
        """True when the last order to it was not delivered."""
        return incarnation in self._failed

    def avoided(self) -> frozenset[str]:
        """Those that get no new work now."""
        now = self._clock.monotonic()
        # One that stayed away for very long is off, or has nothing that could fail any more.
        for incarnation in [i for i, f in self._failed.items() if now - f.until > 10 * AVOID_MOST_SECONDS]:
            del self._failed[incarnation]
        return frozenset(incarnation for incarnation, failed in self._failed.items() if now < failed.until)
