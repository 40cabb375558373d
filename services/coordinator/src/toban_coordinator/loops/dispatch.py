"""Loop `dispatch`: unconfirmed starts go out again or are taken back, and so do cancels until they are proven."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.placement.order_sender import OrderSender
from toban_coordinator.app.placement.start_order import Attempt, start_order, trace_origins
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.ports.orders import CancelOrder, StartOrder, Target
from toban_coordinator.store.pending_work import Agenda
from toban_coordinator.store.placement import runs_assign
from toban_coordinator.store.placement.runs_assign import CancelingRun, SentRun
from toban_domain.job import CancelSpec
from toban_domain.outcome import AttemptKey
from toban_domain.traceparent import TraceContext
from toban_store.tx import autocommit

# A start, and a cancel, goes out again after this time, seconds.
RESEND_SECONDS = 2.0
# An accepted start that no report has confirmed by then goes out again as well: an executor whose journal failed has forgotten it, seconds.
BELIEVED_SECONDS = 10.0
# An undelivered start of this age is taken back, so that its run can go elsewhere, seconds.
TAKE_BACK_SECONDS = 5.0
BATCH = 500


class Dispatch:
    """Reads what is sent and not confirmed, and hands it to the sender again. It writes nothing itself."""

    def __init__(self, *, deps: LoopDeps, definitions: DefinitionCache, sender: OrderSender) -> None:
        self._deps = deps
        self._definitions = definitions
        self._sender = sender
        # When each cancel or revoke went out last, by this machine's monotonic clock, and whether it was a kill.
        self._asked: dict[AttemptKey, tuple[float, bool]] = {}
        # The last run of the page before, 0 = begin again: runs that stay open for long must not hide those behind them.
        self._sent_after = 0
        self._cancel_after = 0

    async def run_once(self) -> TurnOutcome:
        """One turn; raises what broke a lane of the sender, so that a fence reaches the leader."""
        self._sender.raise_broken()
        before = self._deps.server_time.now() - timedelta(seconds=RESEND_SECONDS)
        async with autocommit(self._deps.pool) as t:
            sent = await runs_assign.unconfirmed(t, before, after=self._sent_after, limit=BATCH)
            canceling = await runs_assign.to_cancel(t, after=self._cancel_after, limit=BATCH)
            keys = {(run.definition_id, run.definition_version) for run in sent}
            await self._definitions.find(t, keys | {(run.definition_id, run.definition_version) for run in canceling})
        self._forget(sent)
        self._sent_after, self._cancel_after = _next_page(sent), _next_page(canceling)
        origins = await trace_origins(self._deps.pool, [run.id for run in sent if run.slot is None])
        moved = self._restart(sent, origins) + self._cancel(canceling)
        return TurnOutcome(moved, 0.0 if self._sent_after or self._cancel_after else None)

    def idle_turn(self, agenda: Agenda) -> TurnOutcome | None:
        """A turn without work; None when an order is not confirmed. Raises as `run_once`."""
        self._sender.raise_broken()
        return None if agenda.ordered or self._asked or self._sender.accepted else TurnOutcome()

    def _restart(self, sent: Sequence[SentRun], origins: Mapping[int, TraceContext]) -> int:
        orders: dict[Target, list[StartOrder]] = defaultdict(list)
        back: dict[Target, list[AttemptKey]] = defaultdict(list)
        oldest = self._deps.server_time.now() - timedelta(seconds=TAKE_BACK_SECONDS)
        for run in sent:
            key, target = AttemptKey(run.id, run.token), Target(run.incarnation, run.worker_id, run.address)
            if self._sender.busy_with(run.incarnation, key):
                continue
            if run.closed:
                # It may wait there for a slot, and would start when one becomes free.
                if self._may_ask(key):
                    back[target].append(key)
                continue
            if key in self._sender.accepted:
                continue
            if run.dispatched_at < oldest and self._sender.reach.lost(run.incarnation):
                if self._may_ask(key):
                    back[target].append(key)
            elif (order := self._start_order(key, run, origins.get(run.id))) is not None:
                orders[target].append(order)
        for target, batch in orders.items():
            self._sender.start(target, batch, smallest_live=0)
        for target, keys in back.items():
            self._sender.revoke(target, keys)
        return sum(map(len, orders.values())) + sum(map(len, back.values()))

    def _may_ask(self, key: AttemptKey, *, kill: bool = False) -> bool:
        """A kill does not wait for the time of a cancel that went out before."""
        now = self._deps.clock.monotonic()
        asked_at, killed = self._asked.get(key, (-math.inf, False))
        if now - asked_at < RESEND_SECONDS and (killed or not kill):
            return False
        self._asked[key] = now, kill
        return True

    def _forget(self, sent: Sequence[SentRun]) -> None:
        """Drops old questions, and accepted attempts that are not ASSIGNED any more or stay so for BELIEVED_SECONDS."""
        now, accepted = self._deps.clock.monotonic(), self._sender.accepted
        self._asked = {key: asked for key, asked in self._asked.items() if now - asked[0] < RESEND_SECONDS}
        assigned = {AttemptKey(run.id, run.token) for run in sent}
        first, last = self._sent_after, _next_page(sent) or math.inf
        old, oldest = now - 2 * RESEND_SECONDS, now - BELIEVED_SECONDS
        for key, at in tuple(accepted.items()):
            confirmed = first < key.run_id <= last and key not in assigned
            if at < oldest or (at < old and confirmed):
                del accepted[key]

    def _start_order(self, key: AttemptKey, run: SentRun, origin: TraceContext | None) -> StartOrder | None:
        spec = self._definitions.known((run.definition_id, run.definition_version))
        if spec is None:
            return None
        attempt = Attempt(
            key=key,
            version=run.definition_version,
            number=run.attempt,
            payload=run.payload,
            checkpoint=run.checkpoint or "",
            first_step=run.first_step or 0,
            slot=run.slot,
            timeout_seconds=run.timeout_seconds,
            log_day=run.log_day,
            origin=origin,
            again=True,
            # Sent before, so it has what it needs; without a free slot by now it waits there, and is returned if none becomes free.
            may_wait=True,
            priority=run.priority,
        )
        return start_order(attempt, spec, cluster=self._deps.term.system_id)

    def _cancel(self, canceling: Sequence[CancelingRun]) -> int:
        orders: dict[Target, list[CancelOrder]] = defaultdict(list)
        for run in canceling:
            key = AttemptKey(run.id, run.token)
            if self._sender.busy_with(run.incarnation, key) or not self._may_ask(key, kill=run.cancel_mode == "kill"):
                continue
            orders[Target(run.incarnation, run.worker_id, run.address)].append(self._cancel_order(key, run))
        for target, batch in orders.items():
            self._sender.cancel(target, batch)
        return sum(len(batch) for batch in orders.values())

    def _cancel_order(self, key: AttemptKey, run: CancelingRun) -> CancelOrder:
        spec = self._definitions.known((run.definition_id, run.definition_version))
        # A run whose definition cannot be read can be cancelled all the same.
        how = spec.cancel if spec is not None else CancelSpec()
        return CancelOrder(
            key=key,
            mode=run.cancel_mode or how.mode,
            grace_seconds=how.grace_seconds,
            reason=run.cancel_reason,
            # Asked for with the cancel itself, and not by the definition.
            force=run.cancel_mode == "kill",
        )


def _next_page(runs: Sequence[SentRun] | Sequence[CancelingRun]) -> int:
    """The run after which the next page begins; 0 when this one was the last."""
    return runs[-1].id if len(runs) >= BATCH else 0
