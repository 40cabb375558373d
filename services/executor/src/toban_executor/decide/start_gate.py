"""Few attempts begin at a time: as many as the machine has processors for. No I/O.

Slots that all begin at once displace each other from the caches of the processors: a start then costs half as much again, and ends no sooner.
"""

from __future__ import annotations

from toban_domain.outcome import AttemptKey

BEGINNING_SECONDS = 0.005
"""For so long an attempt counts as beginning; a shorter one until it ends."""


class StartGate:
    """At most `most` attempts are beginning. Times are seconds of a clock that does not jump."""

    def __init__(self, most: int) -> None:
        self._most = most
        # Until when each of them counts, the oldest first.
        self._beginning: dict[AttemptKey, float] = {}

    def began(self, key: AttemptKey, now: float) -> None:
        """A slot has it."""
        self._beginning[key] = now + BEGINNING_SECONDS

    def ended(self, key: AttemptKey) -> None:
        """It is over."""
        self._beginning.pop(key, None)

    def wait(self, now: float) -> float:
        """Seconds until another attempt may begin; 0 = now."""
        while len(self._beginning) >= self._most:
            oldest = next(iter(self._beginning))
            if self._beginning[oldest] > now:
                return self._beginning[oldest] - now
            del self._beginning[oldest]
        return 0.0
