"""Successes need no look at their runs: one statement ends those that several executors report nearly together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.metrics import count_finished
from toban_coordinator.decide.runs import report as decide
from toban_coordinator.decide.runs.report import Report
from toban_coordinator.store.runs import runs_finish
from toban_coordinator.store.runs.runs_finish import HeldEnd
from toban_domain.outcome import AttemptKey, Outcome
from toban_domain.run import RunState
from toban_observability.logs import get_logger
from toban_runtime.group_commit import GroupCommit, GroupLimits
from toban_runtime.loop import WakeRegistry
from toban_store.errors import Refused, StoreError, Unsuitable
from toban_store.pool import Pool
from toban_store.tx import autocommit

# Of a coordinator that does not lead.
NO_LOOPS = WakeRegistry()
# What is woken where the leader's loops run, when slots have become free: loop `assign`, if a run waits for one.
SLOTS = "slots"
# One statement ends so many runs; one call may bring more.
MAX_BATCH = 1000
# A statement costs as much as the ends of dozens of runs.
LINGER_SECONDS = 0.003
_log = get_logger(__name__)

Reported = tuple[str, Mapping[AttemptKey, Outcome]]
"""An incarnation, and the successes that it reports."""


def certain_of(reports: Sequence[Report]) -> dict[AttemptKey, Outcome]:
    """The successes among `reports`, without attempts of which several outcomes are reported."""
    certain: dict[AttemptKey, Outcome] = {}
    ended: set[AttemptKey] = set()
    for report in reports:
        if isinstance(report.what, Outcome):
            if report.key in ended:
                certain.pop(report.key, None)
            elif decide.certain_end(report.what) is RunState.SUCCEEDED:
                certain[report.key] = report.what
            ended.add(report.key)
    return certain


async def end_certain(
    pool: Pool, definitions: DefinitionCache, wakes: WakeRegistry, calls: Sequence[Reported]
) -> list[set[AttemptKey]]:
    """Ends what the executors of `calls` hold, in one statement; the attempts of each call that have ended by it.

    Where the leader's loops run they are woken directly: a commit with a notification waits for every other such commit.
    """
    ends = [HeldEnd(incarnation, *one) for incarnation, certain in calls for one in certain.items()]
    if not ends:
        return [set() for _ in calls]
    notify = not wakes.has("assign")
    async with autocommit(pool) as t:
        finished, names = await runs_finish.finish_held(t, RunState.SUCCEEDED, ends, notify=notify)
    if not notify and finished:
        for name in (SLOTS, *names):
            wakes.wake(name)
    await _load_definitions(pool, definitions, finished)
    count_finished(finished, definitions.known)
    moved = {(run.incarnation, run.id, run.token) for run in finished}
    return [{key for key in certain if (incarnation, *key) in moved} for incarnation, certain in calls]


class CertainEnds:
    """Ends successes of all executors together."""

    def __init__(self, *, pool: Pool, definitions: DefinitionCache, wakes: WakeRegistry) -> None:
        self._pool = pool
        self._definitions = definitions
        self._wakes = wakes
        limits = GroupLimits(max_items=MAX_BATCH, max_size=MAX_BATCH, linger_seconds=LINGER_SECONDS)
        self._group: GroupCommit[Reported, set[AttemptKey]] = GroupCommit(
            self._commit, limits=limits, size_of=lambda reported: len(reported[1]), name="successes"
        )

    async def end(self, incarnation: str, reports: Sequence[Report]) -> set[AttemptKey]:
        """The attempts of `incarnation` that have ended, after the commit. None when PostgreSQL refuses an outcome of the statement, of this
        executor or another."""
        certain = certain_of(reports)
        return await self._group.submit((incarnation, certain)) if certain else set()

    async def _commit(self, calls: Sequence[Reported]) -> list[set[AttemptKey]]:
        try:
            return await end_certain(self._pool, self._definitions, self._wakes, calls)
        except (Refused, Unsuitable):
            # Each executor's reports are committed alone then, so that one of them holds up no other.
            return [set() for _ in calls]


async def _load_definitions(pool: Pool, definitions: DefinitionCache, finished: Sequence[runs_finish.Finished]) -> None:
    """For the metrics alone, so after the commit; a version is read once."""
    unknown = {
        run.definition
        for run in finished
        if not (definitions.known(run.definition) or definitions.broken(run.definition))
    }
    if not unknown:
        return
    try:
        async with autocommit(pool) as t:
            await definitions.find(t, unknown)
    except StoreError as error:
        _log.warning(
            "cannot load definitions for metrics; runs counted without their kind",
            runs=len(finished),
            error=error.message,
        )
