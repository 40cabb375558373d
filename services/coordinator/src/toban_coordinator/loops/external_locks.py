"""Locks of external workers: every coordinator watches all claims, the leader ends those that stand still, and offers that wait for too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from toban_coordinator.app.adaptive_batch import AdaptiveBatch
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.external.claim_ends import apply_plan
from toban_coordinator.app.metrics import count_finished
from toban_coordinator.app.runs.retry_rules import retry_rule
from toban_coordinator.app.withdraw_offers import withdraw_offers
from toban_coordinator.decide.external import external as decide
from toban_coordinator.decide.external.claims import EndedLock, Watched, ended, watch
from toban_coordinator.decide.placement import assign
from toban_coordinator.decide.runs import reap
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.pending_work import Agenda
from toban_coordinator.store.runs import runs_finish
from toban_domain.job import JobSpec
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.errors import Refused, TooLong
from toban_store.pool import Pool
from toban_store.tx import autocommit, fenced_tx

TICK_SECONDS = 0.5
# While there are no claims they are looked for this often, seconds: the first wait for a lock begins as much later.
UNCLAIMED_SECONDS = 2.0
# Offers that wait are looked at this often, seconds.
OFFERS_SECONDS = 1.0
BATCH = 200
MOST_TYPES = 50

_log = get_logger(__name__)
_ended = metrics.counter(
    "toban_external_locks_ended_total",
    "Locks of external workers that the leader ended, by reason: lost (not extended), timed_out, or canceled without an acknowledgement; and by "
    "worker_type (the first 50 of this process, and other).",
    ("reason", "worker_type"),
)


class ClaimObserver:
    """The memory of one coordinator about all claims. `run_once` is the body of a loop that runs in every coordinator."""

    def __init__(self, *, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self.watched: dict[tuple[int, int], Watched] = {}
        # BOOTTIME at which the last read returned.
        self._read_at: float | None = None

    async def run_once(self) -> None:
        """Read every claim; a wait begins when the read that first shows a value has returned."""
        if (
            self._read_at is not None
            and not self.watched
            and self._clock.boottime() - self._read_at < UNCLAIMED_SECONDS
        ):
            return
        async with autocommit(self._pool) as t:
            found = await external_claims.claims(t)
        at = self._clock.boottime()
        self.watched = watch(self.watched, found, read_returned_at=at, last_read_at=self._read_at)
        self._read_at = at


class ExternalLocks:
    """The leader's half, for one term: loop `external`."""

    def __init__(self, *, deps: LoopDeps, definitions: DefinitionCache, observer: ClaimObserver) -> None:
        self._deps = deps
        self._definitions = definitions
        self._observer = observer
        self._batch = AdaptiveBatch(BATCH)
        self._looked_at = -OFFERS_SECONDS
        # Those that the metrics name.
        self._types: set[str] = set()

    def tick(self) -> float:
        """How often the loop looks, seconds: by its own tick while it watches claims."""
        return TICK_SECONDS if self._observer.watched else self._deps.tick()

    def idle_turn(self, agenda: Agenda) -> TurnOutcome | None:
        """A turn without work; None when a step is offered or claimed, or was claimed at the last look."""
        return None if agenda.external or self._observer.watched else TurnOutcome()

    async def run_once(self) -> TurnOutcome:
        """One turn: ends locks that stood still, and offers that waited for too long."""
        await self._observer.run_once()
        still = ended(self._observer.watched, self._deps.clock.boottime())
        await self._batch.each(still, self._end, _not_ended)
        return TurnOutcome(len(still) + await self._end_offers())

    async def _end(self, still: Sequence[EndedLock]) -> None:
        now = self._deps.server_time.now()
        late = {one.claim.run_id for one in still if one.timed_out}
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            claims = await external_claims.lock_still(t, [one.claim for one in still])
            rule = await retry_rule(t, self._definitions, [claim.run for claim in claims])
            finished, expired = [], dict[int, str]()
            for claim in claims:
                plan = decide.expired(
                    claim.run,
                    claimed_at=claim.claimed_at,
                    timed_out=claim.timed_out or claim.run.id in late,
                    last_seq=claim.last_seq,
                    now=now,
                    rule=rule,
                )
                await external_claims.note_cancel_timeouts(t, plan.cancel_timeouts)
                finished += await apply_plan(t, plan)
                expired |= plan.expired
        count_finished(finished, self._definitions.known)
        types = {one.claim.run_id: one.claim.worker_type for one in still}
        for (reason, worker_type), count in Counter((why, types[run]) for run, why in expired.items()).items():
            _ended.labels(reason, self._label(worker_type)).inc(count)
            _log.warning("locks of external workers ended", reason=reason, worker_type=worker_type, runs=count)

    def _label(self, worker_type: str) -> str:
        """The type, or "other" for those after the first that were counted."""
        if len(self._types) < MOST_TYPES:
            self._types.add(worker_type)
        return worker_type if worker_type in self._types else "other"

    async def _end_offers(self) -> int:
        """Offers of runs that have never started: late ones become SKIPPED, and max_wait ends the others."""
        at = self._deps.clock.monotonic()
        if at - self._looked_at < OFFERS_SECONDS:
            return 0
        self._looked_at = at
        now = self._deps.server_time.now()
        setting = (await self._deps.settings.get())["skip_late_runs_after_seconds"]
        skips, expires = dict[int, float](), dict[int, float]()
        async with autocommit(self._deps.pool) as t:
            waiting = await external_claims.unclaimed(t)
            specs = await self._definitions.find(t, {(w.definition_id, w.version) for w in waiting})
            for one in waiting:
                spec = specs.get((one.definition_id, one.version))
                for seconds, found in _bounds(spec, setting, skips, expires):
                    before = now - timedelta(seconds=seconds)
                    if one.oldest < before:
                        runs = await external_claims.unclaimed_since(t, one, before, limit=BATCH)
                        found |= dict.fromkeys(runs, seconds)
        await self._batch.each(list(expires.items()), self._expire, _not_ended)
        await self._batch.each([one for one in skips.items() if one[0] not in expires], self._skip, _not_ended)
        return len(skips) + len(expires)

    async def _expire(self, runs: Sequence[tuple[int, float]]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            back = await withdraw_offers(t, [run for run, _ in runs], "max_wait")
            finished = await runs_finish.finish(t, [reap.waited_too_long(*one) for one in runs if one[0] in back])
        count_finished(finished, self._definitions.known)

    async def _skip(self, runs: Sequence[tuple[int, float]]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            back = await withdraw_offers(t, [run for run, _ in runs], "late")
            finished = await runs_finish.finish(t, [reap.came_too_late(*one) for one in runs if one[0] in back])
        count_finished(finished, self._definitions.known)


def _bounds(
    spec: JobSpec | None, setting: float, skips: dict[int, float], expires: dict[int, float]
) -> list[tuple[float, dict[int, float]]]:
    """The limits of a definition for waiting runs, seconds, each with where the runs beyond it go."""
    if spec is None:
        return []
    limits = [(float(spec.max_wait_seconds), expires), (assign.late_limit(spec, setting), skips)]
    return [(seconds, found) for seconds, found in limits if seconds > 0]


async def _not_ended(one: EndedLock | tuple[int, float], error: Refused | TooLong) -> None:
    """The others are moved; this run is found again by the next turn."""
    run_id = one.claim.run_id if isinstance(one, EndedLock) else one[0]
    _log.error(
        "an external step cannot be ended; set aside", run_id=run_id, error=error.message, sqlstate=error.sqlstate
    )
