"""Loop `census`: how many schedules are active, paused, failed, disabled. Told by the leader alone."""

from __future__ import annotations

from toban_coordinator.loops.base import Done, LoopDeps
from toban_observability import metrics
from toban_store.scheduler import schedules
from toban_store.tx import autocommit

# Counting a hundred thousand rows takes some milliseconds: seldom.
TICK_SECONDS = 15.0

by_status = metrics.gauge(
    "toban_schedules", "Schedules by status: active, paused, failed, disabled (told by the leader).", ("status",)
)


class Census:
    """Reads and tells."""

    def __init__(self, *, deps: LoopDeps) -> None:
        self._deps = deps

    async def run_once(self) -> Done:
        """One count."""
        async with autocommit(self._deps.pool) as t:
            counts = await schedules.counts(t)
        for status, count in counts.items():
            by_status.labels(status).set(count)
        return Done()

    async def close(self) -> None:
        """Whoever leads next tells it."""
        by_status.clear()
