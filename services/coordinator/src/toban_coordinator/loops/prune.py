"""Loop `prune`: day partitions are there before their day comes, and what is older than its retention goes."""

from __future__ import annotations

from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store import notices, retention
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
    """Partitions are idempotent DDL by date under an advisory lock, which needs no fence; rows go in small fenced batches."""

    def __init__(self, *, deps: LoopDeps) -> None:
        self._deps = deps
        self._rows = ROWS
        self._failed: StoreError | None = None

    async def run_once(self) -> TurnOutcome:
        """One turn. What cannot be pruned now does not keep the rest from it. Its error is raised by a turn that has nothing left to do soon,
        so that the loop counts as failing and no backoff holds up the others."""
        self._failed = None
        async with autocommit(self._deps.pool) as t:
            made = await retention.ensure_partitions(t)
        if made:
            made_partitions.inc(made)
            _log.info("day partitions created", partitions=made)
        days = await self._days()
        dropped, next_in = await self._drop(days[HISTORY]) if HISTORY in days else (0, None)
        moved = made + dropped
        for table, setting in retention.ROW_TABLES.items():
            forgotten, more = await self._forget(table, days[setting]) if setting in days else (0, False)
            moved += forgotten
            if more:
                next_in = min(next_in or AGAIN_SECONDS, AGAIN_SECONDS)
        if next_in is None and self._failed is not None:
            raise self._failed
        return TurnOutcome(moved, next_in)

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
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            await notices.remember_successes(t)
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

    async def _forget(self, table: str, days: int) -> tuple[int, bool]:
        """How many rows went, and whether more may be there."""
        total = 0
        try:
            for _ in range(TURN_BATCHES):
                async with fenced_tx(self._deps.pool, self._deps.term) as t:
                    gone = await retention.forget(t, table, days=days, limit=self._rows)
                total += gone
                forgotten_rows.labels(table).inc(gone)
                if gone < self._rows:
                    self._rows = ROWS
                    return total, False
        except TooLong:
            # Smaller steps soon; when a single row takes too long, the next tick begins again.
            self._rows = self._rows // 2 or ROWS
            return total, self._rows < ROWS
        except FencedOut:
            raise
        except StoreError as error:
            _log.error("cannot delete old rows", table=table, error=error.message)
            self._failed = error
            return total, False
        return total, True
