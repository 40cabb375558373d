"""What callers get: emit, the lists, and apply of triggers."""

import json
from typing import Any

import pytest

from toban_coordinator.app.notifications.events import Events
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import Page


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"event_type": "a b"}, ErrorCode.INVALID_ARGUMENT, "order.paid"),
        ({"event_type": ""}, ErrorCode.INVALID_ARGUMENT, "event_type"),
        ({"event_type": "x", "dedupe_key": "é" * 101}, ErrorCode.INVALID_ARGUMENT, "dedupe_key has 202 bytes"),
        ({"event_type": "x", "payload_json": "[]"}, ErrorCode.PAYLOAD_INVALID, "a list"),
        ({"event_type": "x", "payload_json": '{"a": "' + "x" * 33_000 + '"}'}, ErrorCode.PAYLOAD_TOO_LARGE, "32768"),
        ({"event_type": "x", "payload_json": json.dumps({"a": [1e308] * 4000})}, ErrorCode.PAYLOAD_INVALID, "as text"),
    ],
)
async def test_what_cannot_be_accepted_is_refused(
    world: Any, inbox: Any, fields: dict[str, Any], code: ErrorCode, words: str
) -> None:
    with pytest.raises(TobanError) as caught:
        await Events(pool=world.pool).emit(**{"payload_json": "", "dedupe_key": "", **fields}, actor="admin-cli")
    assert caught.value.code is code and words in caught.value.message
    assert await world.sql("SELECT 1 FROM scheduler.events") == []


@pytest.mark.seed(60)
async def test_an_event_is_shown_with_its_key_payload_and_times(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger())
    await inbox.emit("order.paid", "order-7", id=7)

    async def shown() -> pb.Event:
        [event] = (await world.reader.ListEvents(pb.ListEventsRequest(), None)).events
        return event

    before = await shown()
    assert (before.event_type, json.loads(before.payload_json), before.dedupe_key) == (
        "order.paid",
        {"id": 7},
        "order-7",
    )
    assert before.HasField("created_at") and not before.HasField("processed_at")
    await world.turn("events")
    after = await shown()
    assert after.created_at == before.created_at and after.HasField("processed_at")
    assert (after.event_type, after.dedupe_key) == ("order.paid", "order-7")


async def test_pages_of_events_and_triggers(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), *[inbox.trigger(f"t{n}", event_type=f"type{n % 2}") for n in range(5)])
    for n in range(7):
        await inbox.emit(f"type{n % 2}")
        if n == 4:
            await world.turn("events")
    reader = world.reader
    seen, cursor = [], ""
    while True:
        page = await reader.ListEvents(
            pb.ListEventsRequest(page=Page(limit=3, cursor=cursor), event_type="type0"), None
        )
        seen += [(event.id, event.outcome) for event in page.events]
        if not (cursor := page.next_cursor):
            break
    assert seen == [(7, ""), (5, "started"), (3, "started"), (1, "started")]
    assert sorted(await inbox.outcomes(unprocessed=True)) == [6, 7]
    names, cursor = [], ""
    while True:
        page = await reader.ListTriggers(
            pb.ListTriggersRequest(page=Page(limit=2, cursor=cursor), event_type="type0"), None
        )
        names += [one.name for one in page.triggers]
        if not (cursor := page.next_cursor):
            break
    assert names == ["t0", "t2", "t4"]
    for job, found in (("hello", 3), ("other", 0)):
        request = pb.ListTriggersRequest(event_type="type0", job=job)
        assert len((await reader.ListTriggers(request, None)).triggers) == found
    with pytest.raises(TobanError) as caught:
        await reader.ListTriggers(pb.ListTriggersRequest(name="t11"), None)
    assert caught.value.code is ErrorCode.TRIGGER_NOT_FOUND and "did you mean 't1'" in caught.value.message


async def test_apply_of_triggers(world: Any, make: Any, inbox: Any) -> None:
    assert await world.apply(make.job(), inbox.trigger()) == [("hello", "created", 1), ("on-paid", "created", 1)]
    assert await world.apply(inbox.trigger()) == [("on-paid", "unchanged", 1)]
    assert await world.apply(inbox.trigger(filter={"a": 1})) == [("on-paid", "updated", 2)]
    strict = make.job("strict", payload_schema={"type": "object", "required": ["n"]})
    for bad, code, words in (
        (inbox.trigger("x", "helo"), ErrorCode.JOB_NOT_FOUND, "did you mean 'hello'"),
        (inbox.trigger("x", "strict", payload={"m": 1}), ErrorCode.PAYLOAD_INVALID, "document 3: spec.payload"),
        (inbox.trigger("x", fliter={}), ErrorCode.MANIFEST_INVALID, "did you mean 'filter'"),
    ):
        with pytest.raises(TobanError) as caught:
            await world.apply(make.job("new"), strict, bad)
        assert caught.value.code is code and words in caught.value.message
    assert len(await world.sql("SELECT 1 FROM scheduler.job_definitions")) == 1
    with pytest.raises(TobanError) as caught:
        await world.apply(*[inbox.trigger(f"t{n}") for n in range(100)])
    assert "100 triggers" in caught.value.message
    assert len(await world.sql("SELECT 1 FROM scheduler.event_triggers")) == 1
    await world.apply(*[inbox.trigger(f"t{n}") for n in range(99)])
    await inbox.emit()
    await world.turn("events")
    assert len(await inbox.runs()) == 99
