"""Loop `prune`: day partitions are there before their day comes."""

from __future__ import annotations

from toban_coordinator.loops.base import Done, LoopDeps
from toban_observability.logs import get_logger
from toban_store.scheduler import partitions
from toban_store.tx import autocommit

TICK_SECONDS = 600.0
_log = get_logger(__name__)


class Prune:
    """Idempotent DDL by date under an advisory lock: it needs no fence."""

    def __init__(self, *, deps: LoopDeps) -> None:
        self._deps = deps

    async def run_once(self) -> Done:
        """One turn."""
        async with autocommit(self._deps.pool) as t:
            made = await partitions.ensure(t)
        if made:
            _log.info("day partitions made", partitions=made)
        return Done(made)
