"""Accepted orders while all slots are in use, or others start: each starts in a slot that becomes free, or ends without a start."""

import asyncio
from collections.abc import Callable

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import AttemptEnd, StartOrder
from toban_executor.decide.outcome import RETURNED
from toban_executor.decide.start_queue import WAIT_SECONDS, QueuedStarts
from toban_observability import metrics
from toban_runtime.clock import Clock

_waiting = metrics.gauge(
    "toban_executor_orders_waiting",
    "Accepted orders that wait for a slot of this executor, or for other starts.",
)
_returned = metrics.counter(
    "toban_executor_orders_returned_total",
    "Accepted orders that were returned to the leader before they started, by reason: waited (too long), closed (drained, detached, stopping), "
    "lease, term (a new leader), revoked (taken back).",
    ("reason",),
)
# One line for people, by reason.
_TEXTS = {
    "waited": f"no slot of its executor became free within {WAIT_SECONDS:g} s",
    "closed": "its executor takes no new work any more",
    "lease": "the lease of its executor has run out",
    "term": "another coordinator leads now",
    "revoked": "it was taken back",
}
# Overdue orders are looked at no more often than this.
_AGAIN_SECONDS = 0.01
for _reason in _TEXTS:
    _returned.labels(_reason)


class StartQueue:
    """`start` gives an order to a free slot, `end` takes the end of an attempt that never starts, `why_not` says why one may not start any more
    (a key of _TEXTS; empty when it may), `slot_is_free` whether one is: then an order waits for other starts only, and is not returned for it."""

    def __init__(
        self,
        *,
        start: Callable[[StartOrder], None],
        end: Callable[[AttemptEnd], None],
        why_not: Callable[[StartOrder], str],
        slot_is_free: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._start = start
        self._end = end
        self._why_not = why_not
        self._slot_is_free = slot_is_free
        self._clock = clock
        self._orders = QueuedStarts()
        self._watch: asyncio.Task[None] | None = None

    def add(self, order: StartOrder) -> None:
        """It waits from now on."""
        self._orders.add(order, self._clock.boottime())
        _waiting.set(len(self._orders))
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._return_overdue(), name="orders that wait for a slot")

    @property
    def length(self) -> int:
        """How many wait."""
        return len(self._orders)

    def start_next(self) -> None:
        """A slot is free: the next order starts in it; those that may not start any more are returned."""
        while (order := self._orders.take_next()) is not None:
            _waiting.set(len(self._orders))
            why_not = self._why_not(order)
            if not why_not:
                self._start(order)
                return
            self._return(order, why_not)

    def return_all(self, reason: str) -> None:
        """Nothing of what waits starts: its runs go elsewhere."""
        for order in self._orders.take_all():
            self._return(order, reason)

    def return_one(self, key: AttemptKey, reason: str) -> bool:
        """False when this attempt does not wait."""
        order = self._orders.take(key)
        if order is not None:
            self._return(order, reason)
        return order is not None

    def cancel(self, key: AttemptKey, reason: str) -> bool:
        """False when this attempt does not wait."""
        order = self._orders.take(key)
        if order is not None:
            self.end_unstarted(order, cause="cancel", reason=reason or "canceled")
        return order is not None

    def end_unstarted(self, order: StartOrder, *, cause: str, reason: str) -> None:
        """An accepted order never starts: its end is reported, and in the journal, like that of any attempt."""
        _waiting.set(len(self._orders))
        now = int(self._clock.wall().timestamp() * 1e9)
        self._end(AttemptEnd(key=order.key, cause=cause, reason=reason, steps=len(order.steps), finished_ns=now))

    def _return(self, order: StartOrder, reason: str) -> None:
        _returned.labels(reason).inc()
        self.end_unstarted(order, cause=RETURNED, reason=_TEXTS[reason])

    async def _return_overdue(self) -> None:
        while (until := self._orders.next_overdue) is not None:
            await self._clock.sleep(max(_AGAIN_SECONDS, until - self._clock.boottime()))
            if self._slot_is_free():
                continue
            for order in self._orders.take_overdue(self._clock.boottime()):
                self._return(order, "waited")
