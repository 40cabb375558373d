"""Long stretches that pass without runs are counted outside of the transaction that edits their schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from toban_coordinator.app.named_objects import changed
from toban_coordinator.decide.schedules import skipped_slots
from toban_coordinator.decide.schedules.skipped_slots import Counted
from toban_domain.fire_plan import DueSchedule
from toban_schedule import Rule

# How often an edit is repeated because another call edited the same schedule while its slots were counted.
ROUNDS = 3

Counts = Mapping[int, Counted]
T = TypeVar("T")


class Uncounted(Exception):
    """Ends a transaction: slots of these locked schedules up to `until` have to be counted first, and PostgreSQL would not wait for that."""

    def __init__(self, schedules: Sequence[tuple[DueSchedule, Rule]], until: datetime) -> None:
        super().__init__(f"{len(schedules)} schedules to count")
        self.schedules = schedules
        self.until = until

    def count(self) -> dict[int, Counted]:
        """The counts by schedule; takes a second for some days of a rule of every second."""
        return {due.id: skipped_slots.count(due, rule, self.until) for due, rule in self.schedules}


async def with_counts(edit: Callable[[Counts], Awaitable[T]]) -> T:
    """Runs `edit`, one transaction, and again with what it had to have counted: the rest, which is short, it counts itself.

    Raises CONFLICT when the schedules change each time.
    """
    counts: dict[int, Counted] = {}
    missing: Uncounted | None = None
    for _ in range(ROUNDS):
        try:
            return await edit(counts)
        except Uncounted as uncounted:
            missing = uncounted
        counts |= await asyncio.to_thread(missing.count)
    assert missing is not None
    raise changed("schedule", missing.schedules[0][0].spec.name)
