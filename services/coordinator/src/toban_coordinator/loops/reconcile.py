"""Loop `reconcile`: runs that PostgreSQL holds for an executor that has ended them without a result that could be stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from toban_coordinator.app import metrics
from toban_coordinator.app.adaptive_batch import AdaptiveBatch
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.executors.order_results import EndedAttempts, Moves
from toban_coordinator.app.placement.order_sender import OrderSender
from toban_coordinator.decide.runs import reconcile as decide
from toban_coordinator.decide.runs.reconcile import Unresolved
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.ports.orders import Target
from toban_coordinator.store.pending_work import Agenda
from toban_coordinator.store.runs import runs_finish, unresolved_attempts
from toban_domain.outcome import AttemptKey
from toban_observability.logs import get_logger
from toban_store.errors import Refused, TooLong
from toban_store.tx import autocommit, fenced_tx

BATCH = 200
# An executor is asked about an attempt again after this time, seconds.
ASK_SECONDS = 2.0
_log = get_logger(__name__)


class Reconcile:
    """Reads what heartbeats left unresolved, asks executors, and moves only what heartbeats still say the same of, fenced."""

    def __init__(
        self, *, deps: LoopDeps, definitions: DefinitionCache, sender: OrderSender, ended: EndedAttempts
    ) -> None:
        self._deps = deps
        self._definitions = definitions
        self._sender = sender
        self._ended = ended
        self._batch = AdaptiveBatch(BATCH)
        self._asked: dict[AttemptKey, float] = {}
        self._after = 0

    async def run_once(self) -> TurnOutcome:
        """One turn, which is one page."""
        async with autocommit(self._deps.pool) as t:
            noted = await unresolved_attempts.page(t, after=self._after, limit=BATCH)
        more = len(noted) >= BATCH
        self._after = noted[-1].key.run_id if more else 0
        now = self._deps.clock.monotonic()
        plan = decide.plan(noted, self._ended.since, now=now)
        self._ask(plan.ask, now)
        await self._batch.each(plan.lost, self._lost, _not_resolved)
        await self._batch.each(plan.refused, self._refused, _not_resolved)
        await self._batch.each(plan.done, self._done)
        moved = len(plan.ask) + len(plan.lost) + len(plan.refused) + len(plan.done)
        return TurnOutcome(moved, 0.0 if more else None)

    def idle_turn(self, agenda: Agenda) -> TurnOutcome | None:
        """A turn without work; None when something is unresolved."""
        return None if agenda.unresolved else TurnOutcome()

    def _ask(self, open_ones: Sequence[Unresolved], now: float) -> None:
        self._asked = {key: at for key, at in self._asked.items() if now - at < ASK_SECONDS}
        lanes: dict[Target, list[AttemptKey]] = defaultdict(list)
        for one in open_ones:
            if one.key not in self._asked and not self._sender.busy_with(one.incarnation, one.key):
                self._asked[one.key] = now
                lanes[Target(one.incarnation, one.worker_id, one.address)].append(one.key)
        for target, keys in lanes.items():
            _log.info(
                "executor does not name attempts that are assigned to it; asking it",
                worker_id=target.worker_id,
                attempts=len(keys),
                run_id=keys[0].run_id,
            )
            self._sender.revoke(target, keys)

    async def _lost(self, lost: Sequence[Unresolved]) -> None:
        moves = Moves()
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            live = await runs_finish.lock_live(t, [one.key.run_id for one in lost])
            still = await unresolved_attempts.still(t, lost)
            for one in lost:
                run = live.get(one.key.run_id)
                if run is not None and one.key in still:
                    moves.add(*decide.lost_result(run, one.key))
            finished = await moves.write(t)
            await unresolved_attempts.forget(t, list(still))
        metrics.count_finished(finished, self._definitions.known)
        metrics.unstored_results.labels(decide.LOST_RESULT).inc(len(moves.orphans) + len(finished))
        for one in lost:
            if one.key in still:
                _log.warning("result of a run is lost", run_id=one.key.run_id, worker_id=one.worker_id)

    async def _refused(self, refused: Sequence[Unresolved]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            live = await runs_finish.lock_live(t, [one.key.run_id for one in refused])
            still = await unresolved_attempts.still(t, refused)
            ends = [
                decide.result_refused(run, one.key, one.message)
                for one in refused
                if one.key in still and (run := live.get(one.key.run_id)) is not None
            ]
            finished = await runs_finish.finish(t, [end for end in ends if end is not None])
            await unresolved_attempts.forget(t, list(still))
        metrics.count_finished(finished, self._definitions.known)
        metrics.unstored_results.labels(decide.RESULT_REFUSED).inc(len(finished))

    async def _done(self, keys: Sequence[AttemptKey]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            await unresolved_attempts.forget(t, keys)


async def _not_resolved(one: Unresolved, error: Refused | TooLong) -> None:
    """The others are resolved; this one is tried again by the next turn."""
    _log.error(
        "run without a result cannot be moved",
        run_id=one.key.run_id,
        error=error.message,
    )
