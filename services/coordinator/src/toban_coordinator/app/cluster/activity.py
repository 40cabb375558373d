"""The runs of the last 24 hours in intervals, kept in memory: an interval that is over is read again only from time to time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from toban_coordinator.decide.cluster import activity as decide
from toban_coordinator.decide.cluster.activity import INTERVAL, INTERVALS, Interval
from toban_coordinator.store.cluster import activity as store
from toban_runtime.clock import Clock
from toban_store.tx import Row, Tx

# After this the rest of the day waits for the next call, seconds.
BUDGET_SECONDS = 0.25


class Activity:
    """What one process knows of the last day."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[int, Sequence[Row]] = {}
        self._read_at: dict[int, float] = {}

    async def read(self, t: Tx, now: datetime) -> list[Interval]:
        """The intervals that were read so far, the oldest first; the last one is that of `now`, PostgreSQL's time. Raises StoreError."""
        last = int(now.timestamp() // INTERVAL)
        self._forget(last - INTERVALS)
        begun = self._clock.monotonic()
        for first, until in decide.due(self._read_at, last=last, now=begun):
            await self._load(t, first, until)
            if self._clock.monotonic() - begun >= BUDGET_SECONDS:
                break
        live = await store.live(t, now=now.timestamp(), interval=INTERVAL)
        return decide.intervals(self._rows, live, now=now.timestamp())

    async def _load(self, t: Tx, first: int, last: int) -> None:
        rows = await store.ended(t, since=first * INTERVAL, until=(last + 1) * INTERVAL, interval=INTERVAL)
        for number in range(first, last + 1):
            self._rows[number] = [row for row in rows if row["last"] == number]
            self._read_at[number] = self._clock.monotonic()

    def _forget(self, last: int) -> None:
        for number in [number for number in self._rows if number <= last]:
            del self._rows[number], self._read_at[number]
