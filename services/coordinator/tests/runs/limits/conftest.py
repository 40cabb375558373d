"""A checker of limits that every test of this folder can ask, and runs that end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from toban_coordinator.store.limits import limits
from toban_store.errors import TooLong
from toban_store.tx import autocommit


class Limited:
    """A world whose limits are checked: what live runs hold is counted apart from what the coordinator counts."""

    def __init__(self, world: Any, make: Any) -> None:
        self.world, self.make = world, make

    async def live(self, **where: Any) -> list[int]:
        """Sent runs that have not ended."""
        rows = await self.world.sql(
            "SELECT id, job_name, scope_id FROM scheduler.runs_live WHERE dispatched_at IS NOT NULL ORDER BY id"
        )
        return [row["id"] for row in rows if all(row[key] == value for key, value in where.items())]

    async def states(self) -> Counter[str]:
        """How many runs there are in each state."""
        rows = await self.world.sql("SELECT state::text AS state, count(*) AS runs FROM scheduler.job_runs GROUP BY 1")
        return Counter({row["state"]: row["runs"] for row in rows})

    async def end(self, run: int, kind: str = "SUCCEEDED") -> None:
        """The executor reports the end of a run."""
        await self.world.report(self.world.key(run), self.make.outcome(kind))

    async def turns(self, count: int = 1) -> None:
        """What the leader does when something has changed."""
        for _ in range(count):
            for name in ("limits", "resume", "assign"):
                await self.turn(name)

    async def turn(self, name: str) -> None:
        """One turn; on a machine so slow that a fenced transaction does not fit into its bound it is repeated, as the loop does."""
        for _ in range(50):
            await self.beat()
            try:
                await self.world.turn(name)
            except TooLong:
                # What takes too long alone is set aside for two seconds.
                self.world.loops["assign"]._work.__self__._aside._until.clear()
            else:
                return
        raise AssertionError(f"loop {name} never fitted into its bound")

    async def beat(self) -> None:
        """Every executor has just sent a heartbeat, however slow this machine is."""
        await self.world.sql("UPDATE scheduler.executors SET last_heartbeat_at = %(n)s", n=self.world.now())

    async def held(self, key: str) -> int:
        """How much of a limit the coordinator counts as taken."""
        async with autocommit(self.world.pool) as t:
            return (await limits.usage(t, {key: 0}))[key].held


@pytest.fixture
def limited(world: Any, make: Any) -> Limited:
    return Limited(world, make)
