"""Events and triggers for callers: emit, list, delete a trigger. Any coordinator answers."""

from __future__ import annotations

from dataclasses import dataclass

from toban_coordinator.app.named_objects import not_found
from toban_coordinator.app.notifications import event_metrics as metrics
from toban_coordinator.app.paging import FIRST_PAGE, Page, PageRequest, page_of
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.definitions import triggers
from toban_coordinator.store.notifications import events
from toban_coordinator.store.notifications.events import Emitted
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import check_event
from toban_domain.payload import canonical_json, parse_payload
from toban_store.errors import Refused
from toban_store.pool import Pool
from toban_store.tx import autocommit, tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """What callers do with events and triggers."""

    pool: Pool

    async def emit(self, event_type: str, *, payload_json: str, dedupe_key: str, actor: str) -> Emitted:
        """Accepts an event: it is durable when this returns. Raises INVALID_ARGUMENT (type, key), PAYLOAD_INVALID, PAYLOAD_TOO_LARGE."""
        check_event(event_type, dedupe_key)
        payload = canonical_json(parse_payload(payload_json))
        try:
            async with autocommit(self.pool) as t:
                emitted = await events.emit(t, event_type=event_type, payload=payload, key=dedupe_key, actor=actor)
        except Refused as error:
            raise TobanError(
                ErrorCode.PAYLOAD_INVALID,
                f"PostgreSQL cannot store this event ({error.message}); send large numbers as text",
            ) from None
        metrics.received.labels("call").inc()
        return emitted

    async def list_events(
        self, page: PageRequest = FIRST_PAGE, *, event_type: str = "", unprocessed: bool = False
    ) -> Page:
        """Events, newest first; `event_type` "" = any."""
        limit = page.rows
        async with autocommit(self.pool) as t:
            found = await events.page(
                t, below=page.below_id, event_type=event_type, unprocessed=unprocessed, limit=limit + 1
            )
        return page_of(found, limit, "id")

    async def list_triggers(
        self, page: PageRequest = FIRST_PAGE, *, event_type: str = "", name: str = "", job: str = ""
    ) -> Page:
        """Triggers by name, those that start `job` or any. Raises TRIGGER_NOT_FOUND when `name` is given and is not there."""
        limit = page.rows
        async with autocommit(self.pool) as t:
            found = await triggers.page(
                t, after=page.cursor, event_type=event_type, only=name, job=job, limit=limit + 1
            )
            if name and not found:
                raise await not_found(t, "trigger", name)
        return page_of(found, limit, "name")

    async def delete_trigger(self, name: str, actor: str) -> None:
        """Deletes a trigger; runs that it has started go on. Raises TRIGGER_NOT_FOUND."""
        async with tx(self.pool) as t:
            spec = await triggers.delete(t, name)
            if spec is None:
                raise await not_found(t, "trigger", name)
            await audit.note(t, actor, "trigger.delete", f"trigger {name}", before=spec)
