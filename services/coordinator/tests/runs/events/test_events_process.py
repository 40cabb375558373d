"""Events become runs: once, by every trigger that fits, whatever happens in between."""

import asyncio
from typing import Any

import pytest

from toban_coordinator.decide.notifications import events as decide
from toban_coordinator.loops import events as loop
from toban_coordinator.store.definitions import triggers
from toban_coordinator.store.notifications import events as store
from toban_domain.errors import FencedOut
from toban_domain.fire_plan import RunTemplate
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.errors import TooLong
from toban_store.tx import fenced_tx, tx


@pytest.mark.seed(5)
async def test_an_event_starts_the_jobs_of_the_triggers_that_fit(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(
        make.job(default_payload={"a": 1}),
        make.job("other"),
        inbox.trigger(
            payload={"order": "{{ event.payload.order.id }}", "note": "{{ event.type }} #{{ event.payload.order.id }}"}
        ),
        inbox.trigger("large", "other", filter={"order.total": {"gte": 100}}, payload="{{ event.payload.order }}"),
        inbox.trigger("off", enabled=False),
        inbox.trigger("elsewhere", event_type="order.refunded"),
    )
    small = await inbox.emit(order={"id": 7, "total": 5})
    large = await inbox.emit(order={"id": 8, "total": 100})
    nobody = await inbox.emit("order.lost")
    await world.turn("events")
    found = await inbox.runs()
    assert sorted((run["event_id"], run["trigger_name"], run["job_name"], run["origin"]) for run in found) == [
        (small.id, "on-paid", "hello", "event"),
        (large.id, "large", "other", "event"),
        (large.id, "on-paid", "hello", "event"),
    ]
    by_trigger = {(run["event_id"], run["trigger_name"]): run["payload"] for run in found}
    assert by_trigger == {
        (small.id, "on-paid"): {"a": 1, "order": 7, "note": "order.paid #7"},
        (large.id, "on-paid"): {"a": 1, "order": 8, "note": "order.paid #8"},
        (large.id, "large"): {"id": 8, "total": 100},
    }
    listed = await inbox.outcomes()
    assert {number: outcome for number, (outcome, _) in listed.items()} == {
        small.id: "started",
        large.id: "started",
        nobody.id: "no_trigger",
    }
    assert sorted(listed[large.id][1]) == sorted(run["id"] for run in found if run["event_id"] == large.id)
    assert await world.events(found[0]["id"]) == ["created"]
    assert await inbox.outcomes(unprocessed=True) == {}


@pytest.mark.seed(33)
async def test_the_same_key_twice_gives_one_run(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger())
    first = await inbox.emit(key="order-7")
    second = await inbox.emit(key="order-7")
    assert (first.duplicate, second.duplicate) == (False, True)
    await world.turn("events")
    third = await inbox.emit(key="order-7")
    assert third.duplicate
    await world.turn("events")
    assert len(await inbox.runs()) == 1
    listed = await inbox.outcomes()
    assert [listed[one.id][0] for one in (first, second, third)] == ["started", "duplicate", "duplicate"]
    # Another type has keys of its own, and so have events without one.
    await world.apply(inbox.trigger("refund", event_type="order.refunded"))
    for event_type, key in (("order.refunded", "order-7"), ("order.paid", ""), ("order.paid", "")):
        await inbox.emit(event_type, key)
    await world.turn("events")
    assert len(await inbox.runs()) == 4


@pytest.mark.seed(102)
async def test_an_event_that_is_rolled_back_gives_no_run(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger())

    class Undo(Exception):
        pass

    with pytest.raises(Undo):
        async with tx(world.administrator) as t:
            await inbox.emit_sql(t, key="k")
            raise Undo
    await world.turn("events")
    assert await inbox.runs() == [] and await inbox.outcomes() == {}
    async with tx(world.administrator) as t:
        await inbox.emit_sql(t, key="k")
    await world.turn("events")
    [run] = await inbox.runs()
    assert run["trigger_name"] == "on-paid"


async def test_an_emit_that_commits_late_is_not_lost(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger())
    async with tx(world.administrator) as late:
        old = await inbox.emit_sql(late)
        new = await inbox.emit()
        await world.turn("events")
        assert [run["event_id"] for run in await inbox.runs()] == [new.id] and old < new.id
    await world.turn("events")
    assert [run["event_id"] for run in await inbox.runs()] == [new.id, old]


@pytest.mark.seed(33)
async def test_two_emitters_with_one_key_at_once_give_one_run(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger())
    await asyncio.gather(*(inbox.emit(key="k") for _ in range(6)), world.loops["events"]._work())
    async with tx(world.administrator) as one:
        await inbox.emit_sql(one, key="k2")
        # Emitting never waits for anybody, not even for its own key.
        await inbox.emit(key="k2")
    await world.turn("events", "events")
    assert len(await inbox.runs()) == 2
    assert sorted(outcome for outcome, _ in (await inbox.outcomes()).values()) == ["duplicate"] * 6 + ["started"] * 2


@pytest.mark.seed(103)
async def test_two_leaders_and_two_turns_at_once_process_each_event_once(
    world: Any, make: Any, inbox: Any, new_term: Any
) -> None:
    await world.apply(make.job(), inbox.trigger(), inbox.trigger("second"))
    for _ in range(40):
        await inbox.emit()
    turns = [world.loops["events"]._work() for _ in range(3)]
    old, term = world.loops["events"], await new_term(2)
    results = await asyncio.gather(*turns, return_exceptions=True)
    world.take(term)
    await world.turn("events", "events")
    assert all(isinstance(result, FencedOut) or not isinstance(result, BaseException) for result in results)
    with pytest.raises(FencedOut):
        await inbox.emit()
        await old._work()
    await world.turn("events")
    made = [(run["event_id"], run["trigger_name"]) for run in await inbox.runs()]
    assert len(made) == len(set(made)) == 82


@pytest.mark.usefixtures("production_bounds")
async def test_a_take_over_under_way_stops_the_old_leader(world: Any, make: Any, inbox: Any, new_term: Any) -> None:
    await world.apply(make.job(), inbox.trigger())
    await inbox.emit(key="k")
    old = world.loops["events"]
    async with tx(world.administrator) as taking:
        await taking.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await taking.execute("UPDATE scheduler.leader SET epoch = epoch + 1 WHERE id = 1")
        with pytest.raises(TooLong):
            await old._work()
    with pytest.raises(FencedOut):
        await old._work()
    assert await inbox.runs() == [] and list(await inbox.outcomes(unprocessed=True)) == [1]
    world.take(await new_term(2))
    await world.turn("events", "events")
    assert len(await inbox.runs()) == 1


async def test_a_take_over_waits_for_a_write_under_way(world: Any, make: Any, inbox: Any, new_term: Any) -> None:
    await world.apply(make.job(), inbox.trigger())
    await inbox.emit(key="k")
    async with tx(world.administrator) as t:
        [event], [found] = await store.due(t, limit=9), await triggers.of_types(t, ["order.paid"])
    judged = decide.judge(event, [found], lambda trigger, payload: RunTemplate(payload="{}"))
    plan = decide.plan_event(event, judged)
    async with fenced_tx(world.pool, world.term) as t:
        assert await store.process(t, [plan], days=7) == {1: "started"}
        held = await world.sql("SELECT 1 FROM scheduler.leader WHERE id = 1 FOR UPDATE SKIP LOCKED")
        assert held == [], "the leader row is share-locked until the write is committed"
    world.take(await new_term(2))
    async with fenced_tx(world.pool, world.term) as t:
        assert await store.process(t, [plan], days=7) == {}, "what was planned from an old reading finds no event"
    await world.turn("events")
    assert len(await inbox.runs()) == 1


async def test_lateness_counts_from_processing(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(skip_late_after_seconds=60), inbox.trigger())
    await inbox.emit()
    await world.sql("UPDATE scheduler.events SET created_at = now() - interval '1 day'")
    await world.turn("events", "reap")
    [run] = await inbox.runs()
    assert await world.state(run["id"]) == "PENDING"
    assert abs((run["scheduled_for"] - world.now()).total_seconds()) < 30


async def test_a_key_is_forgotten_after_its_days(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), inbox.trigger())
    await inbox.emit(key="k")
    await world.turn("events")
    await world.sql("UPDATE scheduler.event_keys SET seen_at = now() - interval '6 days 23 hours'")
    await inbox.emit(key="k")
    await world.turn("events")
    assert len(await inbox.runs()) == 1
    await world.sql("UPDATE scheduler.event_keys SET seen_at = now() - interval '7 days 1 hour'")
    second = await inbox.emit(key="k")
    await world.turn("events")
    assert len(await inbox.runs()) == 2
    [key] = await world.sql("SELECT event_id, seen_at > now() - interval '1 minute' AS new FROM scheduler.event_keys")
    assert key == {"event_id": second.id, "new": True}
    world.settings.set(dedupe_days=30)
    await world.sql("UPDATE scheduler.event_keys SET seen_at = now() - interval '29 days'")
    await inbox.emit(key="k")
    await world.turn("events")
    assert len(await inbox.runs()) == 2


@pytest.mark.long
async def test_ten_thousand_events_are_processed_in_short_transactions(
    world: Any, make: Any, inbox: Any, monkeypatch: Any
) -> None:
    await world.apply(make.job(), inbox.trigger(payload="{{ event.payload }}"))
    await world.sql(
        "SELECT scheduler.emit_event('order.paid', jsonb_build_object('n', n), CASE WHEN n %% 10 = 0 THEN 'k' || n / 20 END)"
        " FROM generate_series(1, 10000) AS n"
    )
    sizes: list[int] = []
    process = store.process

    async def noted(t: Any, plans: Any, **named: Any) -> Any:
        settled = await process(t, plans, **named)
        sizes.append(len(settled))
        return settled

    monkeypatch.setattr(store, "process", noted)
    turns = 0
    while (await world.turn("events")).next_in == 0.0:
        turns += 1
    assert turns == 20, "500 a turn"
    # Each of them was committed by a fenced transaction, which would have been refused after its 200 ms.
    assert sum(sizes) == 10_000 and max(sizes) <= loop.WRITE_ROWS
    [counts] = await world.sql(
        "SELECT count(*) AS runs, count(DISTINCT event_id) AS events, count(DISTINCT payload ->> 'n') AS payloads FROM scheduler.runs_live"
    )
    # Keys come in pairs: 500 of the 1,000 keyed ones are duplicates (k0 and k500 are alone).
    duplicates = len(await world.sql("SELECT 1 FROM scheduler.events_history WHERE outcome = 'duplicate'"))
    assert counts == {"runs": 10_000 - duplicates, "events": 10_000 - duplicates, "payloads": 10_000 - duplicates}
    assert duplicates == 499 and await world.sql("SELECT 1 FROM scheduler.events") == []


async def test_a_run_says_its_event_and_trigger_also_in_the_history(world: Any, make: Any, inbox: Any) -> None:
    await world.executor()
    await world.apply(make.job(), inbox.trigger())
    emitted = await inbox.emit()
    await world.turn("events")
    [run] = await inbox.runs()
    await world.finished(run["id"])
    assert await world.state(run["id"]) == "SUCCEEDED"
    shown = await world.reader.GetRun(pb.GetRunRequest(id=run["id"]), None)
    assert (shown.event_id, shown.trigger, shown.origin) == (emitted.id, "on-paid", "event")


async def test_a_run_that_a_trigger_got_for_an_event_is_made_once(world: Any, make: Any, inbox: Any) -> None:
    """The last line: whatever plans it again."""
    await world.apply(make.job(), inbox.trigger(), inbox.trigger("other"))
    event = (await inbox.emit()).id
    await world.sql(
        "INSERT INTO scheduler.event_runs (event_id, trigger_id, run_id) SELECT %(e)s, id, 7 FROM scheduler.event_triggers WHERE name = 'other'",
        e=event,
    )
    await world.turn("events")
    assert [run["trigger_name"] for run in await inbox.runs()] == ["on-paid"]


@pytest.mark.parametrize("together", [True, False])
async def test_the_database_has_the_last_word_about_a_key(
    world: Any, make: Any, inbox: Any, monkeypatch: Any, together: bool
) -> None:
    """Plans that were made before another event took the key."""
    await world.apply(make.job(), inbox.trigger())
    first, second = [(await inbox.emit(key="k")).id for _ in range(2)]
    process, plans = store.process, []

    async def kept(_t: Any, given: Any, **_named: Any) -> dict[int, str]:
        plans.extend(given)
        return {}

    monkeypatch.setattr(store, "process", kept)
    monkeypatch.setattr(decide, "first_of_keys", lambda given, _held: list(given))
    await world.turn("events")
    assert [(plan.event.id, len(plan.starts), plan.keeps_key) for plan in plans] == [
        (first, 1, True),
        (second, 1, True),
    ]
    found: dict[int, str] = {}
    for part in [plans] if together else [[plan] for plan in plans]:
        async with fenced_tx(world.pool, world.term) as t:
            found |= await process(t, part, days=7)
    assert found == {first: "started", second: "duplicate"}
    assert [run["event_id"] for run in await inbox.runs()] == [first]
