"""Writes what executors answered to orders: refused starts go back, failed starts end the attempt, revoked cancels are proven."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toban_coordinator.app import metrics
from toban_coordinator.app.adaptive_batch import AdaptiveBatch
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.placement.placement_refusals import PlacementRefusals
from toban_coordinator.app.runs.commit_reports import commit_reports
from toban_coordinator.decide.placement import dispatch as decide
from toban_coordinator.decide.runs import reconcile
from toban_coordinator.decide.runs.report import Report
from toban_coordinator.ports.leader import ServerClock
from toban_coordinator.ports.orders import StartResult, Target
from toban_coordinator.store.placement import queued_orders
from toban_coordinator.store.runs import attempts, runs_finish
from toban_domain.epoch import Term
from toban_domain.outcome import AttemptKey
from toban_domain.run import RunState
from toban_domain.transitions import CloseAttempt, Finish, LiveRun, Orphan, Release
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.errors import Refused, TooLong
from toban_store.pool import Pool
from toban_store.tx import FencedTx, fenced_tx

BATCH = 200
# Much longer than an outcome takes to arrive, seconds.
KEEP_SECONDS = 120.0
TAKEN_BACK = "TAKEN_BACK"
_log = get_logger(__name__)


class EndedAttempts:
    """Attempts that have ended by their executors' word: `since` when, in monotonic seconds. Their outcomes are on the way, or lost."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self.since: dict[AttemptKey, float] = {}

    def note(self, keys: Iterable[AttemptKey]) -> None:
        """The executor answered `finished`; the first answer counts, and is kept for KEEP_SECONDS."""
        now = self._clock.monotonic()
        self.since = {key: at for key, at in self.since.items() if now - at < KEEP_SECONDS}
        for key in keys:
            self.since.setdefault(key, now)


@dataclass(slots=True)
class Moves:
    """What one transaction does with live runs and their attempts."""

    releases: list[Release] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    closes: list[CloseAttempt] = field(default_factory=list)

    def add(self, move: Release | Finish | Orphan | None, close: CloseAttempt | None) -> None:
        """One decision about one run; None changes nothing."""
        match move:
            case Release():
                self.releases.append(move)
            case Orphan():
                self.orphans.append(move)
            case Finish():
                self.finishes.append(move)
        if close is not None:
            self.closes.append(close)

    async def write(self, t: FencedTx) -> list[runs_finish.Finished]:
        """Writes all of it and wakes the loops that go on with these runs; returns the runs that have finished."""
        await runs_finish.release(t, self.releases)
        finished = await runs_finish.finish(t, self.finishes)
        await runs_finish.orphan(t, self.orphans)
        await attempts.close(t, self.closes)
        if self.releases:
            await t.notify("assign")
        if self.orphans:
            await t.notify("reap")
        return finished


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderResults:
    """The writes that follow from answers, as leader of `term`."""

    pool: Pool
    term: Term
    server_time: ServerClock
    definitions: DefinitionCache
    ended: EndedAttempts
    refusals: PlacementRefusals
    _batches: AdaptiveBatch = field(default_factory=lambda: AdaptiveBatch(BATCH))

    async def started(self, target: Target, results: Sequence[StartResult]) -> None:
        """Refusals of starts; accepted ones need no write."""
        refused = [result for result in results if not result.accepted]
        for result in refused:
            metrics.refusals.labels(result.refusal).inc()
        _log.info(
            "starts refused",
            worker_id=target.worker_id,
            refused=len(refused),
            first=refused[0].refusal if refused else "",
        )
        faults = [r for r in refused if r.gone and r.refusal in decide.JOB_FAULTS]
        if faults:
            await self._fail(target, faults)
        back = [r for r in refused if r.gone and r.refusal not in decide.JOB_FAULTS]
        # Before the write, which wakes the loop that places them again.
        for result in back:
            self.refusals.note(result.key, target, result.refusal, result.message)
        await self._batches.each(back, self._put_back, _not_written)

    async def _fail(self, target: Target, faults: Sequence[StartResult]) -> None:
        now = self.server_time.now()
        reports = [Report(r.key, 0, decide.failed_start(r.refusal, r.message, now)) for r in faults]
        await commit_reports(self.pool, self.definitions, target.incarnation, reports)

    async def _put_back(self, refused: Sequence[StartResult]) -> None:
        moves = Moves()
        async with fenced_tx(self.pool, self.term) as t:
            live = await runs_finish.lock_live(t, [r.key.run_id for r in refused])
            for result in refused:
                moves.add(*_refused(live.get(result.key.run_id), result))
            finished = await moves.write(t)
        metrics.count_finished(finished)

    async def gone(self, keys: Sequence[AttemptKey]) -> None:
        """Attempts that the executor promised never to run: CANCEL_REQUESTED → CANCELED, ASSIGNED → PENDING with the same attempt. One that is
        RUNNING has run there without a trace that is left: ORPHANED.
        """
        results = [StartResult(key, False, TAKEN_BACK, "its start did not reach the executor") for key in keys]
        await self._batches.each(results, self._put_back, _not_written)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeliveredOrders:
    """`OrderQueue` in PostgreSQL."""

    pool: Pool

    async def add(
        self, term: Term, target: Target, kind: str, serial: int, payloads: Mapping[AttemptKey, Mapping[str, Any]]
    ) -> None:
        """Queues orders of one kind, as leader of `term`. Raises FencedOut, StoreError."""
        async with fenced_tx(self.pool, term) as t:
            await queued_orders.queue(
                t, incarnation=target.incarnation, kind=kind, serial=serial, orders=list(payloads.items())
            )


async def _not_written(result: StartResult, error: Refused | TooLong) -> None:
    """The others are written; this one is asked for again."""
    _log.error(
        "answer of an executor cannot be written",
        run_id=result.key.run_id,
        answer=result.refusal,
        error=error.message,
    )


def _refused(run: LiveRun | None, result: StartResult) -> tuple[Release | Finish | Orphan | None, CloseAttempt | None]:
    if run is None or run.token != result.key.token:
        return None, None
    if run.state is RunState.RUNNING and result.refusal == TAKEN_BACK:
        return reconcile.lost_result(run, result.key)
    return decide.refused(run, result.refusal, result.message)
