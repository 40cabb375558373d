"""Events and triggers for callers: emit, the lists, and taking a trigger away. Any coordinator answers."""

from __future__ import annotations

from dataclasses import dataclass

from toban_coordinator.loops import event_metrics as metrics
from toban_coordinator.server.paging import below, limit_of, next_cursor
from toban_coordinator.store import audit, events, triggers
from toban_coordinator.store.audit import AdminAction
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import check_event
from toban_domain.nearest import nearest
from toban_domain.payload import canonical_json, parse_payload
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.errors import Refused
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit, tx
from toban_transport.convert import timestamp_to_pb as at


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The calls of JobControl and JobReader about events."""

    pool: Pool

    async def emit(self, request: pb.EmitEventRequest, actor: str) -> pb.EmitEventResponse:
        """Accepts an event: it is durable when this returns. Raises INVALID_ARGUMENT (type, key), PAYLOAD_INVALID, PAYLOAD_TOO_LARGE."""
        check_event(request.event_type, request.dedupe_key)
        payload = canonical_json(parse_payload(request.payload_json))
        try:
            async with autocommit(self.pool) as t:
                emitted = await events.emit(
                    t, event_type=request.event_type, payload=payload, key=request.dedupe_key, actor=actor
                )
        except Refused as error:
            raise TobanError(
                ErrorCode.PAYLOAD_INVALID,
                f"PostgreSQL cannot store this event ({error.message}); send large numbers as text",
            ) from None
        metrics.received.labels("call").inc()
        return pb.EmitEventResponse(event_id=emitted.id, duplicate=emitted.duplicate)

    async def list_events(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        """Events, newest first."""
        limit = limit_of(request.page)
        async with autocommit(self.pool) as t:
            found = await events.page(
                t,
                below=below(request.page.cursor),
                event_type=request.event_type,
                unprocessed=request.unprocessed,
                limit=limit + 1,
            )
        return pb.ListEventsResponse(
            events=[_event_to_pb(row) for row in found[:limit]], next_cursor=next_cursor(found, limit, "id")
        )

    async def list_triggers(self, request: pb.ListTriggersRequest) -> pb.ListTriggersResponse:
        """Triggers by name. Raises TRIGGER_NOT_FOUND when one is asked for by name and is not there."""
        limit = limit_of(request.page)
        async with autocommit(self.pool) as t:
            found = await triggers.page(
                t, after=request.page.cursor, event_type=request.event_type, only=request.name, limit=limit + 1
            )
            if request.name and not found:
                raise await _not_found(t, request.name)
        return pb.ListTriggersResponse(
            triggers=[_trigger_to_pb(row) for row in found[:limit]], next_cursor=next_cursor(found, limit, "name")
        )

    async def delete_trigger(self, request: pb.DeleteTriggerRequest, actor: str) -> pb.DeleteTriggerResponse:
        """Takes a trigger away; runs that it has started go on. Raises TRIGGER_NOT_FOUND."""
        async with tx(self.pool) as t:
            spec = await triggers.delete(t, request.name)
            if spec is None:
                raise await _not_found(t, request.name)
            await audit.note(
                t, AdminAction(actor=actor, action="trigger.delete", target=f"trigger {request.name}", before=spec)
            )
        return pb.DeleteTriggerResponse()


async def _not_found(t: Tx, name: str) -> TobanError:
    near = nearest(name, await triggers.names(t))
    hint = f"did you mean {near!r}?" if near else "see `toban trigger list`"
    return TobanError(
        ErrorCode.TRIGGER_NOT_FOUND, f"there is no trigger {name!r}; {hint}", detail={"trigger": name, "near": near}
    )


def _event_to_pb(row: Row) -> pb.Event:
    return pb.Event(
        id=row["id"],
        event_type=row["event_type"],
        payload_json=row["payload"],
        dedupe_key=row["dedupe_key"] or "",
        created_at=at(row["created_at"]),
        processed_at=at(row["processed_at"]),
        outcome=row["outcome"],
        run_ids=row["run_ids"],
        message=row["message"],
        created_by=row["created_by"],
    )


def _trigger_to_pb(row: Row) -> pb.Trigger:
    return pb.Trigger(
        name=row["name"],
        job=row["job"],
        event_type=row["event_type"],
        enabled=row["enabled"],
        spec_json=row["spec"],
        version=row["version"],
        updated_at=at(row["updated_at"]),
        last_error=row["last_error"],
    )
