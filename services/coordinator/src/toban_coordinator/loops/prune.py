"""Loop `prune`: day partitions are there before their day comes, and what is older than its retention goes."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from toban_coordinator.app.adaptive_batch import AdaptiveBatch
from toban_coordinator.app.notifications.job_pages import JobPages, PartProgress
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.notifications import notices
from toban_coordinator.store.runs import retention
from toban_domain.errors import FencedOut
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.errors import StoreError, TooLong
from toban_store.tx import autocommit, fenced_tx

TICK_SECONDS = 600.0
# When something old is left: soon again, in small steps.
AGAIN_SECONDS = 1.0
# When a partition could not be locked: another session reads a lot of history.
BUSY_SECONDS = 60.0
ROWS = 500
TURN_BATCHES = 20
TURN_PARTITIONS = 8
HISTORY = "history_retention_days"
# What the metrics call the dropping of old partitions.
PARTITIONS = "partitions"
T = TypeVar("T")
_log = get_logger(__name__)

made_partitions = metrics.counter("toban_partitions_made_total", "Day partitions created in advance.")
dropped_partitions = metrics.counter(
    "toban_partitions_dropped_total", "Day partitions dropped because they were older than history_retention_days."
)
busy_partitions = metrics.counter(
    "toban_partitions_busy_total", "Postponed drops of old partitions because the table was in use."
)
forgotten_rows = metrics.counter(
    "toban_rows_forgotten_total",
    "Rows deleted from unpartitioned tables because they were older than their retention.",
    ("table",),
)


class Prune:
    """Partitions are idempotent DDL by date under an advisory lock, which needs no fence; rows go in small fenced batches.

    Each part, and each table, has its own bounds: one that is slow or fails keeps the others from nothing. Old partitions alone wait for one
    thing, that the last successes of jobs are kept elsewhere, and a job for which that takes too long is left out of it.
    """

    def __init__(self, *, deps: LoopDeps) -> None:
        self._deps = deps
        self._batches = {table: AdaptiveBatch(ROWS) for table in retention.ROW_TABLES}
        self._progress = {part: PartProgress(part, deps.clock) for part in (PARTITIONS, *retention.ROW_TABLES)}
        self._successes = JobPages(
            "last_successes", pool=deps.pool, clock=deps.clock, read=notices.expecting_jobs, work=self._remember
        )
        self._failed: StoreError | None = None

    async def run_once(self) -> TurnOutcome:
        """One turn. What cannot be pruned now does not keep the rest from it. Its error is raised by a turn that has nothing left to do soon,
        so that the loop counts as failing and no backoff holds up the others."""
        self._failed = None
        made = await self._guarded("cannot create day partitions", self._make(), 0)
        days = await self._days()
        dropped, next_in = 0, None
        if HISTORY in days:
            dropping = self._drop(days[HISTORY])
            dropped, next_in = await self._guarded("cannot drop old partitions", dropping, (0, None))
            self._progress[PARTITIONS].note(finished=next_in is None and self._failed is None)
        moved = made + dropped
        for table, setting in retention.ROW_TABLES.items():
            if setting not in days:
                continue
            forgotten, more = await self._forget(table, days[setting])
            moved += forgotten
            if more:
                next_in = min(next_in or AGAIN_SECONDS, AGAIN_SECONDS)
        if next_in is None and self._failed is not None:
            raise self._failed
        return TurnOutcome(moved, next_in)

    async def _guarded(self, message: str, part: Awaitable[T], otherwise: T) -> T:
        """What a part answers; `otherwise` when it fails, which does not end the turn."""
        try:
            return await part
        except FencedOut:
            raise
        except StoreError as error:
            _log.error(message, error=error.message)
            self._failed = error
            return otherwise

    async def _make(self) -> int:
        async with autocommit(self._deps.pool) as t:
            made = await retention.ensure_partitions(t)
        if made:
            made_partitions.inc(made)
            _log.info("day partitions created", partitions=made)
        return made

    async def _days(self) -> dict[str, int]:
        """The retentions that are known for sure: what goes is gone, so a default never stands in for a value that cannot be read."""
        days = {}
        for setting in sorted({HISTORY, *retention.ROW_TABLES.values()}):
            value = await self._deps.settings.get_verified(setting)
            if value is not None:
                days[setting] = int(value)
            else:
                _log.error(
                    "nothing is forgotten by a setting that cannot be read; see `toban settings get` and set it again",
                    setting=setting,
                    next_try_seconds=TICK_SECONDS,
                )
        return days

    async def _drop(self, days: int) -> tuple[int, float | None]:
        """How many partitions went, and when to look again."""
        if not await self._successes.turn():
            if self._successes.failed is not None:
                raise self._successes.failed
            return 0, AGAIN_SECONDS
        for dropped in range(TURN_PARTITIONS):
            try:
                async with autocommit(self._deps.pool) as t:
                    name = await retention.drop_partition(t, days=days)
            except TooLong as error:
                busy_partitions.inc()
                _log.info("an old partition is in use", error=error.message, next_try_seconds=BUSY_SECONDS)
                return dropped, BUSY_SECONDS
            if not name:
                return dropped, None
            dropped_partitions.inc()
            _log.info("old partition dropped", partition=name, retention_days=days)
        return TURN_PARTITIONS, AGAIN_SECONDS

    async def _remember(self, jobs: Sequence[int], _most: int) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            await notices.remember_successes(t, jobs)

    async def _forget(self, table: str, days: int) -> tuple[int, bool]:
        """How many rows went, and whether more may be there."""
        total, more, batch, progress = 0, True, self._batches[table], self._progress[table]
        try:
            for _ in range(TURN_BATCHES):
                most = batch.size
                async with fenced_tx(self._deps.pool, self._deps.term) as t:
                    gone = await retention.forget(t, table, days=days, limit=most)
                total += gone
                forgotten_rows.labels(table).inc(gone)
                batch.fitted(most)
                if gone < most:
                    more = False
                    break
        except FencedOut:
            raise
        except StoreError as error:
            progress.note(finished=False)
            if isinstance(error, TooLong) and batch.size > 1:
                # Smaller steps soon.
                batch.too_long(batch.size)
                return total, True
            _log.error("cannot delete old rows", table=table, error=error.message)
            self._failed = error
            return total, False
        progress.note(finished=not more)
        return total, more
