"""What people see of schedules: the ledger page by page, the next slots and why they do not come."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.manifests import ManifestText
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_transport.convert import timestamp_to_pb


async def test_the_ledger_comes_in_pages_latest_first(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule(), make.schedule("other"))
    first = await desk.passed(40)
    await world.turn("fire")
    await desk.delete()
    # Another one of the same name: its ledger goes on where that one's ends.
    await world.apply(make.schedule())
    await desk.passed(-30)
    await world.turn("fire")
    whole = list((await desk.fires(limit=500)).fires)
    slots = [fire.first_slot.ToDatetime() for fire in whole]
    assert slots == sorted(slots, reverse=True)
    # Five slots, or six where the next one begins between the two statements.
    fired = [fire.first_slot.ToDatetime(tzinfo=UTC) for fire in whole if fire.outcome == "fired"]
    assert fired[::-1] == [first + timedelta(seconds=10 * i) for i in range(len(fired))] and len(fired) in (5, 6)
    assert all(fire.run_id for fire in whole if fire.outcome == "fired")
    paged, cursor = [], ""
    while True:
        answer = await desk.fires(limit=2, cursor=cursor)
        paged += list(answer.fires)
        cursor = answer.next_cursor
        if not cursor:
            break
        assert len(answer.fires) == 2
    assert paged == whole
    with pytest.raises(TobanError, match="not from an earlier page"):
        await desk.fires(cursor="7")


async def test_runs_of_slots_to_come_are_not_told_as_fired(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule())
    # The first slot lies 9 s ahead: none begins between the statements of this test.
    await world.steady()
    await world.turn("fire")
    assert len(await desk.ledger()) == 3 and list((await desk.fires()).fires) == []


def slots(name: str = "", count: int = 0, after: str = "", **manifest: Any) -> pb.NextSlotsRequest:
    request = pb.NextSlotsRequest(name=name, count=count)
    if after:
        request.after.CopyFrom(timestamp_to_pb(datetime.fromisoformat(after).replace(tzinfo=UTC)))
    if manifest:
        body = {
            "apiVersion": "toban/v1",
            "kind": "Schedule",
            "metadata": {"name": "x"},
            "spec": {"job": "a", **manifest},
        }
        request.manifest.CopyFrom(pb.Manifest(json=json.dumps(body), source="x.yaml"))
    return request


async def test_next_slots_of_a_manifest_with_the_rule_that_acted(world: Any, desk: Any) -> None:
    request = slots(
        cron="30 2 * * *", timezone="Europe/Berlin", after="2026-10-24T12:00", count=2, dst={"fold": "both"}
    )
    answer = await world.reader.NextSlots(request, None)
    assert (answer.rule, answer.timezone, answer.note) == ("cron 30 2 * * * Europe/Berlin", "Europe/Berlin", "")
    assert [(slot.local, slot.rule_note) for slot in answer.slots] == [
        ("2026-10-25T02:30:00+02:00", "fold: first of two 02:30"),
        ("2026-10-25T02:30:00+01:00", "fold: second of two 02:30"),
    ]
    assert [slot.at.ToDatetime().isoformat() for slot in answer.slots] == ["2026-10-25T00:30:00", "2026-10-25T01:30:00"]


@pytest.mark.seed(146)
async def test_next_slots_of_a_stored_one_say_why_nothing_comes(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule(), make.schedule("off", enabled=False))
    await world.apply(make.schedule("over", end="2026-01-01T00:00:00Z"))
    reader = world.reader
    assert len((await reader.NextSlots(slots("often"), None)).slots) == 5
    assert (await reader.NextSlots(slots("often"), None)).note == ""
    assert "disabled" in (await reader.NextSlots(slots("off"), None)).note
    over = await reader.NextSlots(slots("over"), None)
    assert list(over.slots) == [] and "ended" in over.note and "2026-01-01" in over.note
    await desk.pause(reason="a move")
    paused = await reader.NextSlots(slots("often", count=2), None)
    assert len(paused.slots) == 2 and paused.note.startswith("paused by admin-cli: a move; ")
    await desk.resume()
    await world.apply(make.job(enabled=False))
    assert (await reader.NextSlots(slots("often"), None)).note.startswith("job hello is disabled")
    await world.sql("UPDATE scheduler.schedules SET status = 'failed', status_reason = 'no payload'")
    assert (await reader.NextSlots(slots("often"), None)).note.startswith("failed: no payload; remedy")


async def test_next_slots_after_a_time_that_has_passed_or_lies_ahead(world: Any, make: Any, desk: Any) -> None:
    await world.apply(make.job(), make.schedule("over", end="2026-01-01T00:00:00Z"))
    past = await world.reader.NextSlots(slots("over", count=1, after="2025-12-31T12:00"), None)
    assert [slot.at.ToDatetime() > datetime(2025, 12, 31, 12) for slot in past.slots] == [True]  # noqa: DTZ001
    assert past.note == ""
    later = await world.reader.NextSlots(slots("over", after="2027-01-01T00:00"), None)
    assert list(later.slots) == []
    assert later.note == "no slot comes after 2027-01-01T00:00:00Z, since its end is 2026-01-01T00:00:00Z"
    first = await world.reader.NextSlots(slots("over", count=1, after="1970-01-01T00:00"), None)
    assert [slot.at.ToDatetime().year for slot in first.slots] == [1970]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (slots(), ErrorCode.INVALID_ARGUMENT, "one of them"),
        (slots("often", interval_seconds=5), ErrorCode.INVALID_ARGUMENT, "one of them"),
        (slots("often", count=1001), ErrorCode.INVALID_ARGUMENT, "use 1 to 1000"),
        (slots("often", after="2200-01-01T00:00"), ErrorCode.INVALID_ARGUMENT, "use 1970 to 2199"),
        (slots("often", after="1969-12-31T00:00"), ErrorCode.INVALID_ARGUMENT, "use 1970 to 2199"),
        (slots("nobody"), ErrorCode.SCHEDULE_NOT_FOUND, "nobody"),
        (slots(cron="0 0 30 2 *"), ErrorCode.SCHEDULE_INVALID, "x.yaml: spec.cron: '0 0 30 2 *' never fires"),
        (slots(cron="0 0 * * *", timezone="Europe/Berln"), ErrorCode.SCHEDULE_INVALID, "did you mean Europe/Berlin"),
        (slots(cron="0 0 * * *", daily_at="03:00"), ErrorCode.MANIFEST_INVALID, "has 2 rules"),
        (
            pb.NextSlotsRequest(
                manifest=pb.Manifest(
                    json='{"apiVersion":"toban/v1","kind":"Job","metadata":{"name":"j"},'
                    '"spec":{"steps":[{"argv":["true"]}]}}'
                )
            ),
            ErrorCode.INVALID_ARGUMENT,
            "has no slots",
        ),
        (pb.NextSlotsRequest(manifest=pb.Manifest(json="{")), ErrorCode.MANIFEST_INVALID, "is not JSON"),
    ],
)
async def test_wrong_questions_are_answered(
    world: Any, desk: Any, request_: pb.NextSlotsRequest, code: ErrorCode, words: str
) -> None:
    with pytest.raises(TobanError) as caught:
        await world.reader.NextSlots(request_, None)
    assert caught.value.code is code and words in caught.value.message


async def test_one_schedule_with_everything(world: Any, make: Any, desk: Any) -> None:
    manifest = make.schedule(payload={"n": 1})
    manifest["metadata"]["description"] = "Says hello"
    await world.apply(make.job(), manifest)
    found = await desk.get()
    assert (found.name, found.job, found.rule, found.timezone) == ("often", "hello", "every 10 seconds", "UTC")
    assert (found.description, found.updated_by, found.version) == ("Says hello", "admin-cli", 1)
    assert json.loads(found.spec_json)["payload"] == {"n": 1} and found.HasField("updated_at")


async def test_apply_tells_the_next_change_of_the_clocks(world: Any, make: Any) -> None:
    touched = make.schedule("touched")
    touched["spec"] = {"job": "hello", "daily_at": "02:30", "timezone": "Europe/Berlin"}
    off = {**touched, "metadata": {"name": "off"}, "spec": {**touched["spec"], "enabled": False}}
    texts = [ManifestText(json=json.dumps(one), source="x") for one in (make.job(), touched, off, make.schedule())]
    done = await Apply(pool=world.pool).apply(texts, dry_run=True, actor="admin-cli")
    said = {one.name: one.clock_change for one in done}
    # Twice a year, so one of them is within a year.
    assert ": 02:30 " in said.pop("touched") and set(said.values()) == {""}
    await world.apply(make.job(), touched, off, make.schedule())
    stored = {
        name: (await world.reader.NextSlots(slots(name), None)).clock_change for name in ("touched", "off", "often")
    }
    assert ": 02:30 " in stored.pop("touched") and set(stored.values()) == {""}
