"""Loop `reap`: orphans go on, runs of executors that are off too; overdue, late and long waiting runs end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from toban_coordinator.app import metrics
from toban_coordinator.app.adaptive_batch import AdaptiveBatch
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.executors.order_results import OrderResults
from toban_coordinator.decide.placement import assign as late
from toban_coordinator.decide.runs import reap as decide
from toban_coordinator.decide.runs.reap import Overdue, ReapPlan
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.pending_work import Agenda
from toban_coordinator.store.placement import queued_orders
from toban_coordinator.store.placement.queued_orders import DoneOrder
from toban_coordinator.store.runs import attempts, deferred, runs, runs_finish, runs_reap
from toban_coordinator.store.runs.runs import Waiting
from toban_domain.job import JobSpec
from toban_domain.transitions import Finish, RequestCancel
from toban_observability.logs import get_logger
from toban_store.errors import Refused, TooLong
from toban_store.tx import FencedTx, Tx, autocommit, fenced_tx

BATCH = 200
_log = get_logger(__name__)


class Reap:
    """Each step reads candidates without a lock, and writes only what still holds, fenced."""

    def __init__(self, *, deps: LoopDeps, definitions: DefinitionCache, answers: OrderResults) -> None:
        self._deps = deps
        self._definitions = definitions
        self._answers = answers
        self._batch = AdaptiveBatch(BATCH)
        # Runs that are past their timeout and have a long grace must not hide those behind them.
        self._overdue_after = runs_reap.FIRST_PAGE

    async def run_once(self) -> TurnOutcome:
        """One turn."""
        now = self._deps.server_time.now()
        async with autocommit(self._deps.pool) as t:
            off = await runs_reap.held_by_off(t, limit=BATCH)
            orphans = await runs_reap.orphaned(t, limit=BATCH)
            overdue, more_overdue = await self._overdue(t, now)
            ends = await self._waiting(t, now) + await self._deferred(t, now)
            done = await queued_orders.done(t, limit=BATCH)
        if done:
            await self._answered(done)
        await self._batch.each(off, self._off, _not_moved)
        if off or orphans:
            async with autocommit(self._deps.pool) as t:
                orphans = await runs_reap.orphaned(t, limit=BATCH)
            await self._batch.each(orphans, self._orphans, _not_moved)
        await self._batch.each(overdue, self._overdue_ones, _not_moved)
        await self._batch.each(ends, self._end, _not_moved)
        found = len(off) + len(orphans) + len(overdue) + len(ends) + len(done)
        full = max(len(off), len(orphans), len(ends), len(done)) >= BATCH
        return TurnOutcome(found, 0.0 if full or more_overdue else None)

    def idle_turn(self, agenda: Agenda) -> TurnOutcome | None:
        """A turn without work; None when something needs care, or a run waits and may have to end."""
        return None if agenda.care or agenda.pending else TurnOutcome()

    async def _answered(self, done: Sequence[DoneOrder]) -> None:
        """What executors answered to orders that a heartbeat carried: first to the runs, then the orders are dropped."""
        await self._answers.gone([key for order in done if (key := order.gone) is not None])
        self._answers.ended.note(key for order in done if (key := order.ended) is not None)
        await self._batch.each([order.id for order in done], self._forget)

    async def _forget(self, ids: Sequence[int]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            await queued_orders.forget(t, ids)

    async def _overdue(self, t: Tx, now: datetime) -> tuple[list[RequestCancel], bool]:
        """The cancels of the next page, and whether more pages follow."""
        found = await runs_reap.overdue(t, now, after=self._overdue_after, limit=BATCH)
        more = len(found) >= BATCH
        self._overdue_after = found[-1].place if more else runs_reap.FIRST_PAGE
        specs = await self._definitions.find(t, {(o.run.definition_id, o.run.definition_version) for o in found})
        moves = [
            decide.overdue(
                Overdue(o.run, o.started_at, o.timeout_seconds, o.frozen_seconds),
                specs[(o.run.definition_id, o.run.definition_version)],
                now,
            )
            for o in found
            if (o.run.definition_id, o.run.definition_version) in specs
        ]
        return [move for move in moves if move is not None], more

    async def _waiting(self, t: Tx, now: datetime) -> list[Finish]:
        """What is due and waits, and is ended where its definition says so."""
        waiting = await runs.pending_by_definition(t, now)
        specs = await self._definitions.find(t, {(w.definition_id, w.version) for w in waiting})
        setting = (await self._deps.settings.get())["skip_late_runs_after_seconds"]
        ends: list[Finish] = []
        for w in waiting:
            if (spec := specs.get((w.definition_id, w.version))) is not None:
                ends += await _ends(t, w, spec, setting, now)
        return ends[:BATCH]

    async def _deferred(self, t: Tx, now: datetime) -> list[Finish]:
        """Runs that limits have held back for too long."""
        found = await deferred.overdue(t, now, limit=BATCH)
        specs = await self._definitions.find(t, {(one.definition_id, one.version) for one in found})
        setting = (await self._deps.settings.get())["skip_late_runs_after_seconds"]
        return [
            decide.deferred_too_long(
                one.id, specs.get((one.definition_id, one.version)), started=one.started, late_seconds=setting
            )
            for one in found
        ]

    async def _off(self, ids: Sequence[int]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            plan = decide.executor_off(await runs_reap.lock_held_by_off(t, ids))
            await self._apply(t, plan)

    async def _orphans(self, ids: Sequence[int]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            live = await runs_finish.lock_live(t, ids)
            await self._apply(t, decide.orphaned(list(live.values())))

    async def _overdue_ones(self, overdue: Sequence[RequestCancel]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            await self._apply(t, ReapPlan(cancels=list(overdue)))

    async def _end(self, ends: Sequence[Finish]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            await self._apply(t, ReapPlan(finishes=list(ends)))

    async def _apply(self, t: FencedTx, plan: ReapPlan) -> None:
        await runs_finish.orphan(t, plan.orphans)
        await runs_finish.release(t, plan.releases)
        await runs_finish.request_cancel(t, plan.cancels)
        finished = await runs_finish.finish(t, plan.finishes)
        await attempts.close(t, plan.closes)
        if plan.releases:
            await t.notify("assign")
        if plan.cancels:
            await t.notify("dispatch")
        metrics.count_finished(finished, self._definitions.known)


async def _not_moved(move: int | RequestCancel | Finish, error: Refused | TooLong) -> None:
    """The others are moved; this run is found again by the next turn."""
    run_id = move if isinstance(move, int) else move.run_id
    metrics.set_aside.labels("slow" if isinstance(error, TooLong) else "refused").inc()
    _log.error("run cannot be moved; set aside", run_id=run_id, error=error.message, sqlstate=error.sqlstate)


async def _ends(t: Tx, waiting: Waiting, spec: JobSpec, setting: float, now: datetime) -> list[Finish]:
    ends: list[Finish] = []
    wait, limit = float(spec.max_wait_seconds), late.late_limit(spec, setting)
    if wait > 0 and now - waiting.oldest > timedelta(seconds=wait):
        ids = await _since(t, waiting, now - timedelta(seconds=wait))
        ends += [decide.waited_too_long(run, wait) for run in ids]
    if limit > 0 and now - waiting.oldest > timedelta(seconds=limit):
        ended = {end.run_id for end in ends}
        ids = await _since(t, waiting, now - timedelta(seconds=limit))
        ends += [decide.came_too_late(run, limit) for run in ids if run not in ended]
    return ends


async def _since(t: Tx, waiting: Waiting, before: datetime) -> list[int]:
    return await runs.waiting_since(t, waiting.definition_id, waiting.version, before, limit=BATCH)
