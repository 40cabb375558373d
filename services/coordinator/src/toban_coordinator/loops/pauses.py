"""Loop `pauses`: schedules that are paused until a time are resumed then, and jobs that are disabled until a time enabled."""

from __future__ import annotations

from toban_coordinator.app.definitions.disable_job import DisableJob
from toban_coordinator.app.schedules.schedules import Schedules
from toban_coordinator.decide.schedules.pauses import EndedPause, PauseEnd, split_due
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.schedules import schedules
from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.errors import StoreError
from toban_store.tx import autocommit

# A pause that begins wakes the loop, so that this bounds only how late it notices one whose notification was lost.
TICK_SECONDS = 15.0
BATCH = 200
# A person was quicker: resumed or deleted it, or changed the time.
_NOT_ANY_MORE = frozenset(
    {ErrorCode.RESOURCE_INVALID_STATE, ErrorCode.CONFLICT, ErrorCode.SCHEDULE_NOT_FOUND, ErrorCode.JOB_NOT_FOUND}
)
_log = get_logger(__name__)
ended = metrics.counter(
    "toban_pauses_ended_total",
    "Schedules that the leader resumed, and jobs that it enabled, because the time of their pause had come.",
    ("kind",),
)


class Pauses:
    """Each end is a transaction of its own, which looks at the locked row again: the next leader goes on with what is left."""

    def __init__(self, *, deps: LoopDeps) -> None:
        self._deps = deps
        self._schedules = Schedules(pool=deps.pool)
        self._jobs = DisableJob(pool=deps.pool)
        self._failed: TobanError | None = None

    async def run_once(self) -> TurnOutcome:
        """One turn. Raises the error of one end after the others had their turn."""
        self._failed, moved = None, 0
        async with autocommit(self._deps.pool) as t:
            ends = await schedules.pause_ends(t, limit=BATCH)
        due, next_in = split_due(ends, self._deps.server_time.now())
        for one in due:
            moved += await self._end(one)
        if moved and len(ends) >= BATCH:
            return TurnOutcome(moved, 0.0)
        if self._failed is not None:
            raise self._failed
        return TurnOutcome(moved, next_in)

    async def _end(self, one: PauseEnd) -> bool:
        pause = EndedPause(until=one.until, term=self._deps.term)
        try:
            if one.kind == "job":
                await self._jobs.end_pause(one.name, pause)
            else:
                await self._schedules.end_pause(one.name, pause)
        except FencedOut:
            raise
        except TobanError as error:
            if isinstance(error, StoreError) or error.code not in _NOT_ANY_MORE:
                _log.error("cannot end a pause", kind=one.kind, name=one.name, error=error.message)
                self._failed = error
            return False
        ended.labels(one.kind).inc()
        _log.info("pause ended", kind=one.kind, name=one.name, until=one.until.isoformat())
        return True
