"""Loop `partitions`: makes the partitions of the coming days."""

from __future__ import annotations

from toban_log_archiver.decide import partition_window
from toban_log_archiver.store import partitions
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import autocommit

TICK_SECONDS = 600.0

_log = get_logger(__name__)
_made = metrics.counter("toban_log_partitions_made_total", "Day partitions of schema logs created in advance.")


class PartitionsAhead:
    """`run_once` for a Loop: idempotent, and cheap when nothing is missing."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool

    async def run_once(self) -> int:
        """Makes what is missing; how many tables. Errors are the next turn's."""
        async with autocommit(self._pool) as t:
            today, _ = await partitions.present(t, [])
            first, last = partition_window.ahead(today)
            made = await partitions.ensure(t, first=first, last=last)
        if made:
            _made.inc(made)
            _log.info("partitions made", first=str(first), last=str(last), tables=made)
        return made
