"""Triggers that cannot start their job: tried again, kept, and in nobody's way."""

from typing import Any

import pytest

from toban_coordinator.app.definitions.disable_job import DisableJob
from toban_coordinator.app.notifications.events import Events
from toban_coordinator.store.notifications import events as store
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.tx import tx


async def test_a_payload_that_does_not_fit_is_tried_again_and_then_kept_as_failed(
    world: Any, make: Any, inbox: Any
) -> None:
    picky = make.job("picky", payload_schema={"type": "object", "required": ["n"]})
    await world.apply(
        make.job(), picky, inbox.trigger("bad", "picky", payload={"m": "{{ event.type }}"}), inbox.trigger("good")
    )
    first = await inbox.emit(key="k")
    await world.turn("events")
    assert [run["trigger_name"] for run in await inbox.runs()] == ["good"], "the other trigger has its run at once"
    assert "event " in await inbox.last_error("bad")
    for tries in range(1, 6):
        [row] = await world.sql("SELECT retry_count, retry_at > now() AS waits, retry_triggers FROM scheduler.events")
        assert row == {"retry_count": tries, "waits": True, "retry_triggers": ["bad"]}
        await world.turn("events")
        await inbox.retry_now()
        await world.turn("events")
    [failed] = (await world.reader.ListEvents(pb.ListEventsRequest(), None)).events
    assert (failed.outcome, len(failed.run_ids)) == ("failed", 1)
    assert failed.message.startswith("trigger bad: payload") and "n" in failed.message
    assert len(await inbox.runs()) == 1 and first.id == failed.id
    # It started something, so its key stays taken.
    await inbox.emit(key="k")
    await world.turn("events")
    assert len(await inbox.runs()) == 1


async def test_an_event_whose_trigger_is_corrected_in_time_starts_its_job(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger(payload={"n": "{{ event.payload.order.id }}"}))
    await inbox.emit(id=5)
    await world.turn("events")
    assert await inbox.last_error() == "event 1: payload.n: the event has no payload.order.id"
    await world.apply(inbox.trigger(payload={"n": "{{ event.payload.id }}"}))
    assert await inbox.last_error() == ""
    await inbox.retry_now()
    await world.turn("events")
    [run] = await inbox.runs()
    assert run["payload"] == {"n": 5}
    assert [outcome for outcome, _ in (await inbox.outcomes()).values()] == ["started"]


async def test_a_trigger_that_works_again_has_no_error_any_more(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger(payload={"n": "{{ event.payload.id }}"}))
    await inbox.emit()
    await world.turn("events")
    assert await inbox.last_error() != ""
    await inbox.emit(id=5)
    await world.turn("events")
    assert await inbox.last_error() == "" and len(await inbox.runs()) == 1


async def test_the_key_of_an_event_that_started_nothing_is_free_again(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(enabled=False), inbox.trigger())
    await inbox.emit(key="k")
    await world.turn("events")
    [failed] = (await world.reader.ListEvents(pb.ListEventsRequest(), None)).events
    assert failed.outcome == "failed" and "job 'hello' is disabled" in failed.message
    await world.apply(make.job(), inbox.trigger(payload={"n": "{{ event.payload.id }}"}))
    assert not (await inbox.emit(key="k")).duplicate
    for _ in range(6):
        await world.turn("events")
        await inbox.retry_now()
    assert await world.sql("SELECT 1 FROM scheduler.event_keys") == []
    await inbox.emit(key="k", id=1)
    await world.turn("events")
    assert len(await inbox.runs()) == 1
    assert [outcome for outcome, _ in (await inbox.outcomes()).values()] == ["started", "failed", "failed"]


async def test_a_removed_trigger_lets_its_events_go(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger(payload={"n": "{{ event.payload.id }}"}))
    await inbox.emit()
    await world.turn("events")
    service = Events(pool=world.pool)
    await service.delete_trigger("on-paid", "admin-cli")
    await inbox.retry_now()
    await world.turn("events")
    assert [outcome for outcome, _ in (await inbox.outcomes()).values()] == ["no_trigger"]
    [row] = await world.sql(
        "SELECT actor, action, target, before FROM scheduler.admin_action_log ORDER BY id DESC LIMIT 1"
    )
    assert (row["actor"], row["action"], row["target"]) == ("admin-cli", "trigger.delete", "trigger on-paid")
    assert row["before"]["event_type"] == "order.paid"
    with pytest.raises(TobanError) as caught:
        await service.delete_trigger("on-paid", "admin-cli")
    assert caught.value.code is ErrorCode.TRIGGER_NOT_FOUND


async def test_emitting_needs_no_partition(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger())
    parts = await world.sql(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent IN ('scheduler.events_history'::regclass, 'scheduler.job_events'::regclass)"
    )
    for part in parts:
        await world.sql(f"DROP TABLE scheduler.{part['relname']}")
    await inbox.emit(key="k")
    async with tx(world.administrator) as t:
        await inbox.emit_sql(t)
    await world.turn("events")
    rows = await world.sql("SELECT retry_count, last_error, retry_at > now() AS waits FROM scheduler.events")
    assert len(rows) == 2 and all(
        row["retry_count"] == 0 and row["waits"] and "partition" in row["last_error"] for row in rows
    )
    await world.turn("prune")
    await inbox.retry_now()
    await world.turn("events")
    assert len(await inbox.runs()) == 2 and await inbox.outcomes(unprocessed=True) == {}


async def test_what_cannot_be_read_stops_no_other_trigger(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(
        make.job(),
        make.job("broken"),
        inbox.trigger(),
        inbox.trigger("odd", event_type="odd"),
        inbox.trigger("b", "broken", "b"),
    )
    await world.sql("UPDATE scheduler.event_triggers SET spec = '[]' WHERE name = 'odd'")
    await world.sql(
        "UPDATE scheduler.job_definition_versions SET spec = '{}'"
        " WHERE definition_id = (SELECT id FROM scheduler.job_definitions WHERE name = 'broken')"
    )
    async with tx(world.administrator) as t:
        # A number of 5,000 digits is sound JSON for PostgreSQL.
        huge = await inbox.emit_sql(t, payload='{"n": 1e4999}')
        deep = await inbox.emit_sql(t, payload='{"a":' + "[" * 3000 + "]" * 3000 + "}")
        odd = await inbox.emit_sql(t, "odd")
        broken = await inbox.emit_sql(t, "b")
        good = await inbox.emit_sql(t)
    await world.turn("events")
    listed = await inbox.outcomes()
    assert [run["event_id"] for run in await inbox.runs()] == [good]
    assert (listed[huge][0], listed[deep][0], listed[odd][0], listed[broken][0]) == ("failed", "failed", "", "")
    assert "cannot be read" in await inbox.last_error("odd") and "definition" in await inbox.last_error("b")


async def test_a_trigger_that_changed_under_the_plan_is_judged_again(
    world: Any, make: Any, inbox: Any, monkeypatch: Any
) -> None:
    await world.apply(make.job(), inbox.trigger(payload={"v": 1}))
    await inbox.emit()
    edits = [inbox.trigger(payload={"v": 2})]
    process = store.process

    async def edited_before(*given: Any, **named: Any) -> Any:
        while edits:
            await world.apply(edits.pop())
        return await process(*given, **named)

    monkeypatch.setattr(store, "process", edited_before)
    done = await world.turn("events")
    assert await inbox.runs() == [] and done.next_in is not None
    await world.turn("events")
    [run] = await inbox.runs()
    assert run["payload"] == {"v": 2}


@pytest.mark.usefixtures("production_bounds")
async def test_an_event_with_many_large_runs_steps_aside_when_it_takes_too_long(
    world: Any, make: Any, inbox: Any
) -> None:
    await world.apply(make.job(), inbox.trigger(), inbox.trigger("other", event_type="other"))
    await world.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$"
    )
    await world.sql(
        "CREATE TRIGGER slow BEFORE INSERT ON scheduler.runs_live FOR EACH ROW WHEN (NEW.trigger_name = 'on-paid') EXECUTE FUNCTION slow()"
    )
    await inbox.emit()
    await inbox.emit("other")
    await world.turn("events")
    assert [run["trigger_name"] for run in await inbox.runs()] == ["other"]
    [row] = await world.sql("SELECT retry_at > now() AS waits, last_error FROM scheduler.events")
    assert row["waits"] and row["last_error"]
    await world.sql("DROP TRIGGER slow ON scheduler.runs_live")
    await inbox.retry_now()
    await world.turn("events")
    assert len(await inbox.runs()) == 2


@pytest.mark.usefixtures("production_bounds")
async def test_an_event_whose_runs_do_not_fit_into_one_write_is_written_in_several(
    world: Any, make: Any, inbox: Any
) -> None:
    names = [f"t{number:02}" for number in range(12)]
    await world.apply(make.job(), *[inbox.trigger(name) for name in names], inbox.trigger("bad", payload={"v": 1}))
    await world.sql("UPDATE scheduler.event_triggers SET spec = '{}' WHERE name = 'bad'")
    await world.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.03); RETURN NEW; END $$"
    )
    await world.sql("CREATE TRIGGER slow BEFORE INSERT ON scheduler.runs_live FOR EACH ROW EXECUTE FUNCTION slow()")
    event = (await inbox.emit(key="k")).id
    done = await world.turn("events")
    made = {run["trigger_name"] for run in await inbox.runs()}
    assert 0 < len(made) < 12 and done.next_in == 0.05, "what fits is written, and the rest comes soon"
    [row] = await world.sql("SELECT retry_triggers, retry_at <= clock_timestamp() AS due FROM scheduler.events")
    assert set(row["retry_triggers"]) == {*names, "bad"} - made and row["due"]
    assert (await inbox.emit(key="k")).duplicate
    for _ in range(12):
        await inbox.retry_now()
        await world.turn("events")
    assert sorted(run["trigger_name"] for run in await inbox.runs()) == names
    outcomes = await inbox.outcomes()
    assert outcomes[event][0] == "failed" and len(outcomes[event][1]) == 12, "one trigger has failed for good"
    assert [outcome for number, (outcome, _) in outcomes.items() if number != event] == ["duplicate"]


async def test_an_event_of_a_job_that_a_person_disabled_says_by_whom_and_why(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger())
    await DisableJob(pool=world.pool).disable("hello", reason="the source moves", actor="user ada")
    await inbox.emit()
    await world.turn("events")
    assert await inbox.runs() == []
    assert "job 'hello' is disabled by user ada: the source moves; enable it" in await inbox.last_error()
