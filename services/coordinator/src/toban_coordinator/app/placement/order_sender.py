"""Sends orders to executors: one lane an executor, so that a slow one holds up no other; what gathers meanwhile goes out together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from toban_coordinator.app import metrics
from toban_coordinator.app.placement.reachability import Reachability
from toban_coordinator.ports.orders import (
    NOT_SENT,
    QUEUED,
    CancelOrder,
    StartOrder,
    StartResult,
    Target,
    WorkerOrders,
)
from toban_domain.epoch import Term
from toban_domain.errors import FencedOut, TobanError
from toban_domain.outcome import AttemptKey
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

_log = get_logger(__name__)


class EndedAttempts(Protocol):
    """Keeps when executors answered that attempts have ended."""

    def note(self, keys: Iterable[AttemptKey]) -> None:
        """They ended before now."""
        ...


class Answers(Protocol):
    """Takes what executors answer."""

    async def started(self, target: Target, results: Sequence[StartResult]) -> None:
        """Answers to starts."""
        ...

    async def gone(self, keys: Sequence[AttemptKey]) -> None:
        """Attempts that were to be cancelled or taken back and of which the executor holds nothing, by its promise."""
        ...

    @property
    def ended(self) -> EndedAttempts:
        """Takes attempts that were to be cancelled or taken back and have ended there."""
        ...


class Lane:
    """The orders for one incarnation that wait or are under way."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.starts: dict[AttemptKey, StartOrder] = {}
        self.cancels: dict[AttemptKey, CancelOrder] = {}
        self.revokes: set[AttemptKey] = set()
        self.flying: set[AttemptKey] = set()
        self.smallest = 0
        self.task: asyncio.Task[None] | None = None


class OrderSender:
    """Sends orders of one term, while it `holds()`. `accepted` has when (monotonic) executors confirmed attempts, `reach` who could not
    be reached."""

    def __init__(
        self,
        *,
        orders: WorkerOrders,
        term: Term,
        answers: Answers,
        clock: Clock,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        self._holds = holds
        self._orders = orders
        self._clock = clock
        self._term = term
        self._answers = answers
        self._lanes: dict[str, Lane] = {}
        self._broken: Exception | None = None
        self._closed = False
        self.accepted: dict[AttemptKey, float] = {}
        self.reach = Reachability(clock=clock)

    def start(self, target: Target, orders: Sequence[StartOrder], *, smallest_live: int) -> None:
        """Queues starts. The executor will refuse every token below `smallest_live` from then on; 0 refuses none."""
        lane = self._lane(target)
        lane.smallest = min(smallest_live, lane.smallest) if lane.starts else smallest_live
        lane.starts.update((order.key, order) for order in orders)
        self._go(lane)

    def cancel(self, target: Target, orders: Sequence[CancelOrder]) -> None:
        """Queues cancels."""
        lane = self._lane(target)
        lane.cancels.update((order.key, order) for order in orders)
        self._go(lane)

    def revoke(self, target: Target, keys: Sequence[AttemptKey]) -> None:
        """Queues that attempts are taken back; what cannot be delivered goes out with the answer to a heartbeat."""
        lane = self._lane(target)
        lane.revokes.update(keys)
        self._go(lane)

    def busy_with(self, incarnation: str, key: AttemptKey) -> bool:
        """True when an order about this attempt waits or is under way."""
        lane = self._lanes.get(incarnation)
        return lane is not None and any(key in keys for keys in (lane.starts, lane.cancels, lane.revokes, lane.flying))

    def raise_broken(self) -> None:
        """Raises what ended a lane: FencedOut must reach the leader."""
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken

    async def idle(self) -> None:
        """Waits until nothing is queued or under way."""
        while tasks := [lane.task for lane in self._lanes.values() if lane.task is not None]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Ends every call under way: the term is over, and nothing is sent any more."""
        self._closed = True
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        self._lanes.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _lane(self, target: Target) -> Lane:
        return self._lanes.setdefault(target.incarnation, Lane(target))

    def _go(self, lane: Lane) -> None:
        if lane.task is None and not self._closed:
            lane.task = asyncio.create_task(self._drain(lane), name=f"orders to {lane.target.worker_id}")

    async def _drain(self, lane: Lane) -> None:
        try:
            while lane.starts or lane.cancels or lane.revokes:
                if not self._holds():
                    # What waited here while this process stood still is the next leader's to send.
                    raise FencedOut(self._term.epoch)
                if lane.cancels:
                    await self._send_cancels(lane)
                if lane.revokes:
                    await self._send_revokes(lane)
                if lane.starts:
                    await self._send_starts(lane)
        except FencedOut as error:
            self._broken = error
        except TobanError as error:
            # Not delivered for certain, or not written: the dispatch loop sends what is still open again.
            _log.warning(
                "orders not delivered, or their answers not written; open ones are sent again",
                worker_id=lane.target.worker_id,
                code=error.code.value,
                error=error.message,
            )
        except Exception as error:
            _log.exception("sending orders failed unexpectedly", worker_id=lane.target.worker_id)
            self._broken = error
        finally:
            lane.task = None
            lane.starts.clear()
            lane.cancels.clear()
            lane.revokes.clear()
            lane.flying.clear()
            self._lanes.pop(lane.target.incarnation, None)

    async def _send_starts(self, lane: Lane) -> None:
        batch, lane.starts = list(lane.starts.values()), {}
        lane.flying = {order.key for order in batch}
        try:
            results = await self._orders.start(lane.target, self._term, batch, lane.smallest)
        except TobanError as error:
            _end_spans(batch, lane.target, {}, error.message)
            self._note_undelivered(lane)
            raise
        if len(results) < len(batch):
            # The loop `dispatch` sends the rest again.
            self._note_undelivered(lane)
        else:
            self.reach.answered(lane.target.incarnation)
        _end_spans(batch, lane.target, {result.key: result.refusal for result in results if not result.accepted})
        now = self._clock.monotonic()
        self.accepted.update((result.key, now) for result in results if result.accepted)
        if any(not result.accepted for result in results):
            await self._answers.started(lane.target, await self._without_doubt(lane, results))
        lane.flying = set()

    def _note_undelivered(self, lane: Lane) -> None:
        metrics.undelivered.labels("start").inc()
        self.reach.failed(lane.target.incarnation)

    async def _without_doubt(self, lane: Lane, results: Sequence[StartResult]) -> list[StartResult]:
        """`results` without orders that were not sent and that the executor may have had in another form: it must promise never to start them."""
        invalid = [result.key for result in results if result.refusal in NOT_SENT]
        if not invalid:
            return list(results)
        _log.error(
            "starts cannot be sent", worker_id=lane.target.worker_id, orders=len(invalid), run_id=invalid[0].run_id
        )
        promised = await self._orders.revoke(lane.target, self._term, invalid)
        return [r for r in results if r.refusal not in NOT_SENT or promised.get(r.key) == "gone"]

    async def _send_cancels(self, lane: Lane) -> None:
        batch, lane.cancels = list(lane.cancels.values()), {}
        lane.flying = {order.key for order in batch}
        try:
            results = await self._orders.cancel(lane.target, self._term, batch)
        except TobanError:
            metrics.undelivered.labels("cancel").inc()
            raise
        self._note_reachable(lane, "cancel", results)
        self._answers.ended.note(key for key, result in results.items() if result == "finished")
        # A cancel of what the executor has never seen proves nothing; its promise never to start it does. The answer to a queued
        # cancel may be just that, so the question for the promise waits beside it.
        await self._take_back(lane, [key for key, result in results.items() if result in ("unknown", QUEUED)])
        lane.flying = set()

    async def _send_revokes(self, lane: Lane) -> None:
        lane.flying, lane.revokes = lane.revokes, set()
        await self._take_back(lane, sorted(lane.flying))
        lane.flying = set()

    async def _take_back(self, lane: Lane, keys: Sequence[AttemptKey]) -> None:
        if not keys:
            return
        try:
            results = await self._orders.revoke(lane.target, self._term, keys)
        except TobanError:
            metrics.undelivered.labels("revoke").inc()
            raise
        self._note_reachable(lane, "revoke", results)
        self._answers.ended.note(key for key, result in results.items() if result == "finished")
        gone = [key for key, result in results.items() if result == "gone"]
        if gone:
            await self._answers.gone(gone)

    def _note_reachable(self, lane: Lane, kind: str, results: Mapping[AttemptKey, str]) -> None:
        if QUEUED in results.values():
            metrics.undelivered.labels(kind).inc()
            self.reach.failed(lane.target.incarnation)
        else:
            self.reach.answered(lane.target.incarnation)


def _end_spans(
    batch: Sequence[StartOrder], target: Target, refusals: Mapping[AttemptKey, str], error: str = ""
) -> None:
    for order in batch:
        if order.span is not None:
            order.span.end({"toban.worker_id": target.worker_id}, error or refusals.get(order.key, ""))
