"""Makes the partitions of a ticket's day before a chunk of that day is written."""

from __future__ import annotations

from datetime import date

from toban_log_archiver.decide.partition_window import DAYS_BACK, may_make
from toban_log_archiver.store import partitions
from toban_store.pool import Pool
from toban_store.tx import autocommit


class PartitionCache:
    """Remembers which days have partitions."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool
        self._present: set[date] = set()

    async def ready(self, day: date) -> str:
        """Empty when chunks of `day` can be written (its partitions are made where that is allowed), else why not. Raises StoreError."""
        if day in self._present:
            return ""
        async with autocommit(self._pool) as t:
            today, present = await partitions.present(t, [day])
            if day not in present:
                if not may_make(day, today=today):
                    return f"log_day {day} is not within {DAYS_BACK} days of {today}, and has no partition"
                await partitions.ensure(t, first=day, last=day)
        self._present.add(day)
        return ""

    def forget(self) -> None:
        """A write found a partition missing: the next ticket reads them from the database."""
        self._present.clear()
