"""Events as the tests see them: emitted by call or in SQL, and what became of them."""

import json
from typing import Any

import pytest

from toban_coordinator.app.notifications.events import Events
from toban_coordinator.store.notifications.events import Emitted
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import Page


class Inbox:
    """The calls about events over the database of `world`."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.service = Events(pool=world.pool)

    @staticmethod
    def trigger(
        name: str = "on-paid", job: str = "hello", event_type: str = "order.paid", **spec: Any
    ) -> dict[str, Any]:
        """A manifest of a trigger."""
        return {
            "apiVersion": "toban/v1",
            "kind": "EventTrigger",
            "metadata": {"name": name},
            "spec": {"event_type": event_type, "job": job, **spec},
        }

    async def emit(self, event_type: str = "order.paid", key: str = "", **payload: Any) -> Emitted:
        """By call."""
        text = json.dumps(payload)
        return await self.service.emit(event_type, payload_json=text, dedupe_key=key, actor="admin-cli")

    async def emit_sql(
        self, t: Any, event_type: str = "order.paid", payload: str = "{}", key: str | None = None
    ) -> int:
        """In the transaction `t`, as an application does; the id."""
        statement = "SELECT scheduler.emit_event(%(t)s, %(p)s::jsonb, %(k)s) AS id"
        row = await t.fetch_one(statement, {"t": event_type, "p": payload, "k": key})
        return int(row["id"])

    async def runs(self) -> list[dict[str, Any]]:
        """All runs, in the order they were made."""
        rows: list[dict[str, Any]] = await self.world.sql("SELECT * FROM scheduler.job_runs ORDER BY id")
        return rows

    async def outcomes(self, **wanted: Any) -> dict[int, tuple[str, list[int]]]:
        """Outcome ("" = not processed) and runs of each event, newest first."""
        answer = await self.world.reader.ListEvents(pb.ListEventsRequest(page=Page(limit=500), **wanted), None)
        return {event.id: (event.outcome, list(event.run_ids)) for event in answer.events}

    async def retry_now(self) -> None:
        """The next try of every event that waits for one is due."""
        await self.world.sql("UPDATE scheduler.events SET retry_at = now() - interval '1 s' WHERE retry_at IS NOT NULL")

    async def last_error(self, name: str = "on-paid") -> str:
        """The last error of a trigger."""
        [found] = (await self.service.list_triggers(name=name)).rows
        return str(found["last_error"])


@pytest.fixture
def inbox(world: Any) -> Inbox:
    """The events of `world`."""
    return Inbox(world)
