"""What the tests about schedules ask and do through the calls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from toban_coordinator.app.schedules.schedules import Schedules
from toban_coordinator.server.to_proto import schedule_to_pb
from toban_proto.v1 import common_pb2
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock

ACTOR = "admin-cli"


@dataclass
class Desk:
    """The calls about schedules, on the world's database."""

    world: Any

    @property
    def calls(self) -> Schedules:
        return Schedules(pool=self.world.pool)

    async def pause(
        self, name: str = "often", reason: str = "maintenance", until: datetime | None = None
    ) -> pb.Schedule:
        return schedule_to_pb(await self.calls.pause(name, reason=reason, actor=ACTOR, until=until))

    async def resume(self, name: str = "often", reason: str = "") -> pb.Schedule:
        return schedule_to_pb(await self.calls.resume(name, reason=reason, actor=ACTOR))

    async def delete(self, name: str = "often", reason: str = "") -> int:
        return await self.calls.delete(name, reason=reason, actor=ACTOR)

    async def get(self, name: str = "often") -> pb.Schedule:
        return schedule_to_pb(await self.calls.get(name))

    async def fires(self, name: str = "often", limit: int = 0, cursor: str = "") -> pb.ListFiresResponse:
        page = common_pb2.Page(limit=limit, cursor=cursor)
        return await self.world.reader.ListFires(pb.ListFiresRequest(schedule=name, page=page), None)

    async def ledger(self) -> list[tuple[str, int]]:
        rows = await self.world.sql("SELECT outcome, slots FROM scheduler.fire_ledger ORDER BY first_slot")
        return [(row["outcome"], row["slots"]) for row in rows]

    async def passed(self, seconds: int) -> datetime:
        """Lets the next slot of every schedule lie so many seconds back (on a slot of the period 10 s); answers it."""
        rows = await self.world.sql(
            "UPDATE scheduler.schedules SET next_run_at = to_timestamp(floor(extract(epoch FROM now()) / 10) * 10 - %(s)s)"
            " RETURNING next_run_at",
            s=seconds,
        )
        return rows[0]["next_run_at"]

    async def actions(self) -> list[dict[str, Any]]:
        return await self.world.sql(
            "SELECT actor, action, target, before, after, reason FROM scheduler.admin_action_log WHERE target LIKE 'schedule %%'"
            " ORDER BY id"
        )


@pytest.fixture
def desk(world: Any) -> Desk:
    return Desk(world)


@pytest.fixture
async def young_period(world: Any) -> None:
    """No slot of the period of 10 s comes within the next 4 s: PostgreSQL's clock does not stop with the world's."""
    if (gone := SystemClock().wall().timestamp() % 10) > 6:
        await asyncio.sleep(10 - gone)
