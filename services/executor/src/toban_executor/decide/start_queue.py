"""Accepted orders that wait for a slot: which starts next, when another one may start, and which have waited for too long. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import StartOrder

WAIT_SECONDS = 1.0
"""How long an order waits at most. The leader sends no more than what the executor starts in a third of this, so only slots that were given to longer
jobs meanwhile let an order wait for so long; its run may then start elsewhere."""
MOST_A_SLOT = 16
"""Orders that wait for each slot, at most."""
STARTING_SECONDS = 0.005
"""For so long an attempt counts as starting; a shorter one until it ends."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An order that waits, at most until `until`, in seconds of a clock that does not jump."""

    order: StartOrder
    until: float


class QueuedStarts:
    """In the order in which they start: the highest priority first, then the oldest."""

    def __init__(self) -> None:
        # By priority; within each in the order of arrival.
        self._by_priority: dict[int, dict[AttemptKey, Waiting]] = {}
        self._priorities: dict[AttemptKey, int] = {}

    def __len__(self) -> int:
        return len(self._priorities)

    def add(self, order: StartOrder, now: float) -> None:
        """It waits from `now` on."""
        self._by_priority.setdefault(order.priority, {})[order.key] = Waiting(order, now + WAIT_SECONDS)
        self._priorities[order.key] = order.priority

    def take(self, key: AttemptKey) -> StartOrder | None:
        """This order, which waits no more; None when it did not."""
        priority = self._priorities.pop(key, None)
        if priority is None:
            return None
        same = self._by_priority[priority]
        order = same.pop(key).order
        if not same:
            del self._by_priority[priority]
        return order

    def take_next(self) -> StartOrder | None:
        """The order that starts next, which waits no more; None when none waits."""
        if not self._priorities:
            return None
        return self.take(next(iter(self._by_priority[max(self._by_priority)])))

    @property
    def next_overdue(self) -> float | None:
        """When the first of them has waited for WAIT_SECONDS; None when none waits."""
        return min((next(iter(same.values())).until for same in self._by_priority.values()), default=None)

    def take_overdue(self, now: float) -> list[StartOrder]:
        """Those that have waited for WAIT_SECONDS at `now`, which wait no more."""
        late = [key for same in self._by_priority.values() for key, one in same.items() if one.until <= now]
        return [order for key in late if (order := self.take(key)) is not None]

    def take_all(self) -> list[StartOrder]:
        """All of them, in the order in which they would start."""
        found = []
        while (order := self.take_next()) is not None:
            found.append(order)
        return found


class StartThrottle:
    """At most `most` attempts are starting. Times are seconds of a clock that does not jump.

    Slots that start processes at the same time evict each other from the caches of the processors: a start then costs half as much again, and is
    no sooner over. So `most` is the number of processors.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # Until when each of them counts as starting, the oldest first.
        self._starting: dict[AttemptKey, float] = {}

    def started(self, key: AttemptKey, now: float) -> None:
        """The attempt was given to a slot."""
        self._starting[key] = now + STARTING_SECONDS

    def ended(self, key: AttemptKey) -> None:
        """The attempt is over."""
        self._starting.pop(key, None)

    def wait(self, now: float) -> float:
        """Seconds until another attempt may start; 0 = now."""
        while len(self._starting) >= self._most:
            oldest = next(iter(self._starting))
            if self._starting[oldest] > now:
                return self._starting[oldest] - now
            del self._starting[oldest]
        return 0.0
