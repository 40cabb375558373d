"""Large, deep and odd events: none of them stops the others, or keeps the event loop from its heartbeats."""

import asyncio
import contextlib
import json
import time
from typing import Any

import pytest

from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.notifications import event_metrics as metrics
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.decide.notifications import events as decide
from toban_coordinator.decide.notifications.event_batching import Room, front
from toban_coordinator.decide.notifications.events import EVENT_RETRIES
from toban_coordinator.loops import events as loop
from toban_coordinator.store.notifications import events as store
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import EventPlan, InboxEvent
from toban_runtime.clock import SystemClock
from toban_runtime.cooperative_yield import CooperativeYield
from toban_store.errors import DidNotHappen, TooLong
from toban_store.tx import tx


def nested(levels: int) -> str:
    return '{"a":' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize("levels", [100, 450, 700, 900, 3000])
async def test_a_deep_event_fails_alone(world: Any, make: Any, inbox: Any, levels: int) -> None:
    await world.apply(make.job(), inbox.trigger(payload="{{ event.payload }}"))
    async with tx(world.administrator) as t:
        deep = await inbox.emit_sql(t, payload=nested(levels))
        good = await inbox.emit_sql(t)
    await world.turn("events")
    assert [run["event_id"] for run in await inbox.runs()] == [good]
    assert (await inbox.outcomes())[deep][0] == "failed" and "100 levels" in await failure_of(inbox, deep)


async def failure_of(inbox: Any, event: int) -> str:
    page = await inbox.service.list_events()
    return next(str(row["message"]) for row in page.rows if row["id"] == event)


async def test_deep_payloads_are_refused_by_every_call(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job())
    deep = nested(600)

    def manifest(document: dict[str, Any], key: str) -> str:
        document["spec"][key] = "DEEP"
        return json.dumps(document).replace('"DEEP"', deep)

    async def apply(text: str) -> None:
        await Apply(pool=world.pool).apply([ManifestText(json=text)], actor="admin-cli")

    for call in (
        inbox.service.emit("a.b", payload_json=deep, dedupe_key="", actor="admin-cli"),
        world.start(payload_json=deep),
        apply(manifest(make.job(), "default_payload")),
        apply(manifest(make.schedule(), "payload")),
        apply(manifest(inbox.trigger(), "payload")),
    ):
        with pytest.raises(TobanError) as caught:
            await call
        said = f"{caught.value.message} {caught.value.detail}"
        assert caught.value.code in (ErrorCode.PAYLOAD_INVALID, ErrorCode.MANIFEST_INVALID) and "100 levels" in said


async def test_an_unexpected_error_fails_one_event_and_is_counted(
    world: Any, make: Any, inbox: Any, monkeypatch: Any
) -> None:
    await world.apply(make.job(), inbox.trigger(payload="{{ event.payload }}"))
    made = PayloadValidator.make

    def odd(self: PayloadValidator, key: Any, spec: Any, given: Any) -> str:
        if "odd" in given:
            raise RecursionError("too deep")
        return made(self, key, spec, given)

    monkeypatch.setattr(PayloadValidator, "make", odd)
    good = await inbox.emit()
    bad = await inbox.emit(key="k", odd=1)
    before = metrics.defects._value.get()
    await world.turn("events")
    assert [run["event_id"] for run in await inbox.runs()] == [good.id]
    assert (await inbox.outcomes())[bad.id] == ("failed", [])
    assert metrics.defects._value.get() == before + 1
    assert "RecursionError" in await inbox.last_error()
    assert await world.sql("SELECT 1 FROM scheduler.event_keys") == [], "it may be emitted again under its key"


async def test_large_events_yield_to_the_event_loop(world: Any, make: Any, inbox: Any) -> None:
    schema = {"type": "object"}
    names = [f"job{n}" for n in range(5)]
    await world.apply(
        *[make.job(name, payload_schema=schema) for name in names],
        *[inbox.trigger(f"on-{name}", name, payload={"all": "{{ event.payload }}"}) for name in names],
    )
    await world.sql(
        "SELECT scheduler.emit_event('order.paid', jsonb_build_object('items', (SELECT jsonb_agg(i * n) FROM generate_series(1, 3500) i)))"
        " FROM generate_series(1, 100) n"
    )
    gaps: list[float] = []

    async def heart() -> None:
        # The thread's CPU time: what else the machine does is no gap.
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            gaps.append(time.thread_time() - last)
            last = time.thread_time()

    beating = asyncio.create_task(heart())
    while await inbox.outcomes(unprocessed=True):
        # A busy machine may end a transaction at its bound: the loop turns again.
        with contextlib.suppress(TooLong):
            await world.turn("events")
    beating.cancel()
    assert len(await inbox.runs()) == 500 and await inbox.outcomes(unprocessed=True) == {}
    # Planned in one go this was a gap of more than a second; the leader steps down after one.
    assert max(gaps) < 0.3, f"the longest gap was {max(gaps):.3f} s of {len(gaps)}"


async def test_others_get_their_turn_between_two_triggers_of_one_event(
    world: Any, make: Any, inbox: Any, monkeypatch: Any
) -> None:
    await world.apply(make.job(), *[inbox.trigger(f"t{n}", payload={"n": n}) for n in range(5)])
    now, turns, seen = [0.0], [0], []

    class Slow(SystemClock):
        def monotonic(self) -> float:
            return now[0]

    def slow(self: PayloadValidator, key: Any, spec: Any, given: Any) -> str:
        now[0] += 0.01
        seen.append(turns[0])
        return "{}"

    async def other() -> None:
        while True:
            await asyncio.sleep(0)
            turns[0] += 1

    monkeypatch.setattr(PayloadValidator, "make", slow)
    monkeypatch.setattr(loop, "CooperativeYield", lambda _: CooperativeYield(Slow()))
    await inbox.emit()
    beating = asyncio.create_task(other())
    await world.turn("events")
    beating.cancel()
    assert len(seen) == 5 and len(set(seen)) == 5, seen


async def test_parts_are_bounded_by_runs_and_bytes(world: Any, make: Any, inbox: Any, monkeypatch: Any) -> None:
    parts = watch_parts(monkeypatch)
    await world.apply(make.job(), *[inbox.trigger(f"t{n}", payload="{{ event.payload }}") for n in range(4)])
    for _ in range(130):
        await inbox.emit()
    await world.turn("events")
    assert [len(part) for part in parts] == [100, 30]
    parts.clear()
    for _ in range(20):
        await inbox.emit(text="x" * 32_000)
    await world.turn("events")
    assert [len(part) for part in parts] == [12, 8], "five times 32 kB each"


def watch_parts(monkeypatch: Any) -> list[list[int]]:
    """The events of each part that was written."""
    parts: list[list[int]] = []
    process = store.process

    async def noted(t: Any, plans: Any, **named: Any) -> Any:
        parts.append([plan.event.id for plan in plans])
        return await process(t, plans, **named)

    monkeypatch.setattr(store, "process", noted)
    return parts


async def test_an_event_that_breaks_the_connection_steps_aside_and_nothing_is_planned_twice(
    world: Any, make: Any, inbox: Any, monkeypatch: Any
) -> None:
    await world.apply(make.job(), inbox.trigger(payload="{{ event.payload }}"))
    ids = [(await inbox.emit(key=f"k{n % 20}", n=n)).id for n in range(30)]
    bad = ids[11]
    process, judge, planned = store.process, decide.judge, []

    async def breaks(t: Any, plans: Any, **named: Any) -> Any:
        if bad in [plan.event.id for plan in plans]:
            raise DidNotHappen(ErrorCode.UNAVAILABLE, "the connection to PostgreSQL was lost: test")
        return await process(t, plans, **named)

    def noted(event: Any, *given: Any, **named: Any) -> Any:
        planned.append(event.id)
        return judge(event, *given, **named)

    monkeypatch.setattr(store, "process", breaks)
    monkeypatch.setattr(decide, "judge", noted)
    await world.turn("events")
    assert sorted(planned) == ids, "each once, however often a part was cut"
    [row] = await world.sql("SELECT id, retry_at > now() AS waits, last_error FROM scheduler.events")
    assert row["id"] == bad and row["waits"] and "was lost" in row["last_error"]
    outcomes = await inbox.outcomes()
    assert [outcomes[number][0] for number in ids] == [
        "" if number == bad else "duplicate" if place >= 20 else "started" for place, number in enumerate(ids)
    ]


async def test_the_same_key_behind_an_event_that_stepped_aside_is_no_duplicate(
    world: Any, make: Any, inbox: Any, monkeypatch: Any
) -> None:
    await world.apply(make.job(), inbox.trigger())
    first, second = await inbox.emit(key="k"), await inbox.emit(key="k")
    process = store.process

    async def breaks(t: Any, plans: Any, **named: Any) -> Any:
        if first.id in [plan.event.id for plan in plans]:
            raise DidNotHappen(ErrorCode.UNAVAILABLE, "the connection to PostgreSQL was lost: test")
        return await process(t, plans, **named)

    monkeypatch.setattr(store, "process", breaks)
    await world.turn("events")
    assert [run["event_id"] for run in await inbox.runs()] == [second.id]
    monkeypatch.setattr(store, "process", process)
    await inbox.retry_now()
    await world.turn("events")
    assert (await inbox.outcomes())[first.id] == ("duplicate", []) and len(await inbox.runs()) == 1


async def test_the_whole_payload_is_made_once_for_a_definition(
    world: Any, make: Any, inbox: Any, monkeypatch: Any
) -> None:
    picky = make.job("picky", payload_schema={"type": "object", "required": ["n"]})
    await world.apply(
        make.job(),
        picky,
        *[inbox.trigger(f"t{n}", payload="{{event.payload}}") for n in range(3)],
        *[inbox.trigger(f"p{n}", "picky", payload="{{ event.payload }}") for n in range(3)],
        inbox.trigger("part", payload={"m": "{{ event.payload.m }}"}),
    )
    made: list[Any] = []
    make_payload = PayloadValidator.make

    def noted(self: PayloadValidator, key: Any, spec: Any, given: Any) -> str:
        made.append(given)
        return make_payload(self, key, spec, given)

    monkeypatch.setattr(PayloadValidator, "make", noted)
    await inbox.emit(m=1)
    await world.turn("events")
    assert made.count({"m": 1}) == 3, "once for hello, once for picky, and for the trigger that passes a part on"
    assert [run["payload"] for run in await inbox.runs()] == [{"m": 1}] * 4
    [row] = await world.sql("SELECT retry_triggers FROM scheduler.events")
    assert row["retry_triggers"] == ["p0", "p1", "p2"]


def test_room_takes_the_first_whatever_its_size(world: Any) -> None:
    event = InboxEvent(id=1, type="a", payload="x" * 100, key="", created_at=world.now(), created_by="")
    plan = EventPlan(event=event, outcome="no_trigger")
    room = Room(1, 10)
    assert room.takes(plan) and not room.takes(plan)
    assert [len(front([plan] * 9, Room(*given))) for given in ((3, 1000), (9, 250), (0, 0))] == [3, 2, 1]


async def test_writes_of_an_event_that_is_cut_are_no_tries_of_a_trigger_that_fails(
    world: Any, make: Any, inbox: Any, monkeypatch: Any
) -> None:
    """Nine writes of one run each come within a second; the trigger that fails keeps its tries of a minute."""
    monkeypatch.setattr(loop, "WRITE_ROWS", 2)
    schema = {"type": "object", "required": ["mended"]}
    await world.apply(make.job(), *[inbox.trigger(f"t{n}") for n in range(9)])
    await world.apply(make.job("strict"), inbox.trigger("bad", "strict"))
    await world.apply(make.job("strict", payload_schema=schema), force=True)
    world.take(world.term)
    event = (await inbox.emit(key="k")).id
    for runs in range(1, 10):
        await world.turn("events")
        assert len(await inbox.runs()) == runs
    for tries in range(2, EVENT_RETRIES + 1):
        [row] = await world.sql("SELECT retry_count, retry_triggers FROM scheduler.events")
        assert row == {"retry_count": tries, "retry_triggers": ["bad"]}
        await inbox.retry_now()
        await world.turn("events")
    assert (await inbox.outcomes())[event][0] == "failed" and len(await inbox.runs()) == 9
