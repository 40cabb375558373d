"""What becomes of events: each once, by the triggers that fit, and no failure in anybody's way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.notifications import events as decide
from toban_coordinator.decide.notifications.events import EVENT_RETRIES, MakeTemplate, retry_seconds, trigger_errors
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import DueTrigger, EventPlan, InboxEvent, TriggerSpec
from toban_domain.fire_plan import RunTemplate

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def event(number: int = 1, kind: str = "a", **fields: Any) -> InboxEvent:
    given = {"payload": '{"n": 1}', "key": "", "created_at": NOW, "created_by": "admin-cli", **fields}
    return InboxEvent(id=number, type=kind, **given)


def trigger(name: str = "t", kind: str = "a", *, number: int = 1, enabled: bool = True, **spec: Any) -> DueTrigger:
    return DueTrigger(
        id=number,
        name=name,
        version=1,
        event_type=kind,
        spec=TriggerSpec(name=name, event_type=kind, job="j", **spec),
        definition_id=1,
        definition_version=1,
        job="j",
        job_enabled=enabled,
    )


def make(_: DueTrigger, payload: Mapping[str, Any]) -> RunTemplate:
    """A job whose schema refuses `bad`."""
    if "bad" in payload:
        raise TobanError(ErrorCode.PAYLOAD_INVALID, "payload.bad: no")
    return RunTemplate(payload=json.dumps(dict(payload)))


def plan_event(one: InboxEvent, triggers: Iterable[DueTrigger], maker: MakeTemplate) -> EventPlan:
    """The plan of one event, whoever has its key."""
    return decide.plan_event(one, decide.judge(one, triggers, maker))


def plan_batch(
    events: Sequence[InboxEvent],
    triggers: Sequence[DueTrigger],
    held: Mapping[tuple[str, str], int],
    maker: MakeTemplate,
) -> list[EventPlan]:
    """The plans of events that are written together."""
    plans = [plan_event(one, [t for t in triggers if t.event_type == one.type], maker) for one in events]
    return decide.first_of_keys(plans, held)


SPECS: list[dict[str, Any]] = [
    {},
    {"payload": "{{ event.payload }}"},
    {"payload": {"bad": 1}},
    {"payload": {"n": "{{ event.payload.n }}"}},
    {"filter": {"n": {"gte": 1}}},
    {"filter": {"m": {"exists": True}}},
]
kinds = st.sampled_from("ab")
names = st.sampled_from(["t1", "t2", "t3"])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[InboxEvent], list[DueTrigger], dict[tuple[str, str], int]]:
    events = [
        event(
            number,
            draw(kinds),
            key=draw(st.sampled_from(["", "", "k1", "k2"])),
            payload=draw(st.sampled_from(['{"n": 1}', '{"n": 0, "m": []}', "{}", '{"bad": 1}', "{", "[]"])),
            tries=draw(st.integers(0, EVENT_RETRIES)),
            retry_triggers=tuple(draw(st.sets(names))),
            runs=draw(st.integers(0, 2)),
        )
        for number in range(1, draw(st.integers(0, 6)) + 1)
    ]
    triggers = [
        trigger(f"t{number}", draw(kinds), number=number, enabled=draw(st.booleans()), **draw(st.sampled_from(SPECS)))
        for number in range(1, draw(st.integers(0, 3)) + 1)
    ]
    held = draw(st.dictionaries(st.tuples(kinds, st.sampled_from(["k1", "k2"])), st.integers(1, 9), max_size=2))
    return events, triggers, held


@given(worlds())
def test_every_event_gets_one_plan_that_keeps_the_rules(world: Any) -> None:
    events, triggers, held = world
    plans = plan_batch(events, triggers, held, make)
    assert [plan.event for plan in plans] == events
    for plan in plans:
        assert plan.outcome in ("started", "no_trigger", "duplicate", "failed", "retry")
        judged = [start.trigger for start in plan.starts] + [failure.trigger for failure in plan.failures]
        assert len({one.id for one in judged}) == len(judged)
        assert all(one.event_type == plan.event.type for one in judged)
        # A trigger that has had the event never gets it again.
        assert plan.event.tries == 0 or {one.name for one in judged} <= set(plan.event.retry_triggers)
        assert (plan.outcome == "retry") == (plan.delay_seconds > 0)
        assert plan.outcome != "retry" or (plan.failures and plan.event.tries < EVENT_RETRIES)
        assert (plan.outcome in ("failed", "retry")) == bool(plan.failures)
        assert bool(plan.message) == (plan.outcome in ("failed", "retry", "duplicate"))
        assert plan.outcome != "started" or plan.starts or plan.event.runs
        if plan.outcome == "duplicate":
            assert plan.event.key and not judged and not plan.keeps_key
    for key in {(one.type, one.key) for one in events if one.key}:
        owners = [plan.event.id for plan in plans if plan.keeps_key and (plan.event.type, plan.event.key) == key]
        assert len(owners) <= 1 and (not owners or held.get(key, owners[0]) == owners[0])


@given(worlds())
def test_the_others_decide_nothing_about_an_event_without_a_key(world: Any) -> None:
    events, triggers, held = world
    together = plan_batch(events, triggers, held, make)
    for plan in together:
        if not plan.event.key:
            assert plan == plan_event(plan.event, [one for one in triggers if one.event_type == plan.event.type], make)


@given(worlds())
def test_one_bad_trigger_changes_no_other(world: Any) -> None:
    events, triggers, _ = world
    bad = trigger("zz", "a", number=99, payload={"bad": 1})
    for one in events:
        mine = [candidate for candidate in triggers if candidate.event_type == one.type]
        alone, beside = plan_event(one, mine, make), plan_event(one, [*mine, bad], make)
        assert alone.starts == beside.starts
        assert alone.failures == tuple(failure for failure in beside.failures if failure.trigger.id != 99)


@given(st.integers(0, 20))
def test_tries_come_to_an_end(tries: int) -> None:
    plan = plan_event(event(tries=tries, retry_triggers=("t",)), [trigger(payload={"bad": 1})], make)
    assert plan.outcome == ("retry" if tries < 5 else "failed")


def test_the_waits_double() -> None:
    assert [retry_seconds(tries) for tries in range(1, 7)] == [2, 4, 8, 16, 32, 64]
    assert retry_seconds(60) == 300


def test_the_first_of_a_key_wins() -> None:
    plans = plan_batch([event(1, key="k"), event(2, key="k"), event(3, "b", key="k")], [trigger()], {}, make)
    assert [plan.outcome for plan in plans] == ["started", "duplicate", "no_trigger"]
    assert plans[1].message == "event 1 has its key"
    again = plan_batch([event(1, key="k", tries=1, retry_triggers=("t",))], [trigger()], {("a", "k"): 1}, make)
    assert [plan.outcome for plan in again] == ["started"]


def test_an_event_that_failed_and_started_nothing_leaves_its_key() -> None:
    off = trigger(enabled=False)
    first, second = plan_batch([event(1, key="k"), event(2, key="k")], [off], {}, make)
    assert (first.outcome, first.keeps_key, second.outcome) == ("failed", False, "failed")
    beside = plan_event(event(1, key="k"), [off, trigger("u", number=2)], make)
    assert (beside.outcome, beside.keeps_key, len(beside.starts)) == ("failed", True, 1)
    waiting = plan_event(event(1, key="k"), [trigger(payload={"bad": 1})], make)
    assert (waiting.outcome, waiting.keeps_key) == ("retry", True)


def test_a_disabled_job_is_final_and_a_broken_trigger_is_not() -> None:
    broken = DueTrigger(
        id=3,
        name="b",
        version=1,
        event_type="a",
        spec=None,
        definition_id=1,
        definition_version=1,
        job="j",
        job_enabled=True,
        broken="cannot be read",
    )
    off = trigger(enabled=False)
    assert plan_event(event(), [off], make).outcome == "failed"
    both = plan_event(event(), [off, broken], make)
    assert (both.outcome, [failure.final for failure in both.failures]) == ("retry", [True, False])
    assert (
        both.message == "trigger t: job 'j' is disabled; enable it and emit the event again; trigger b: cannot be read"
    )


def test_a_payload_that_cannot_be_read_is_final() -> None:
    plan = plan_event(event(payload='{"n": ' + "9" * 5000 + "}"), [trigger()], make)
    assert plan.outcome == "failed" and "not JSON" in plan.message
    assert plan_event(event(payload="["), [], make).outcome == "no_trigger"


def test_errors_of_triggers() -> None:
    bad = trigger("bad", number=2, payload={"bad": 1})
    plans = plan_batch([event(1), event(2)], [trigger(), bad], {}, make)
    settled = {1: "retry", 2: "retry"}
    assert trigger_errors(plans, settled) == {(2, 1): "event 2: payload.bad: no"}
    assert trigger_errors(plans, {1: "retry"}) == {(2, 1): "event 1: payload.bad: no"}
    assert trigger_errors(plans, {1: "duplicate"}) == {}
    mended = [EventPlan(event=plan.event, outcome="started", starts=plan.starts) for plan in plans]
    assert trigger_errors(mended, settled) == {}


def test_an_unexpected_error_is_a_final_failure_of_that_trigger_alone() -> None:
    def odd(one: DueTrigger, payload: Mapping[str, Any]) -> RunTemplate:
        if one.name == "odd":
            raise RecursionError("\0 \ud800")
        return make(one, payload)

    plan = plan_event(event(key="k"), [trigger("odd"), trigger("good", number=2)], odd)
    assert (plan.outcome, [start.trigger.name for start in plan.starts]) == ("failed", ["good"])
    [failure] = plan.failures
    assert failure.final and isinstance(failure.defect, RecursionError)
    assert "RecursionError" in plan.message and plan.message.isascii() and "\0" not in plan.message


def test_what_reading_a_payload_did_not_expect_is_final_too(monkeypatch: Any) -> None:
    def odd(_: str) -> dict[str, Any]:
        raise ZeroDivisionError

    monkeypatch.setattr(decide, "parse_payload", odd)
    plan = plan_event(event(), [trigger()], make)
    assert plan.outcome == "failed" and plan.failures[0].defect is not None


def test_judging_goes_one_trigger_at_a_time() -> None:
    made: list[str] = []

    def noted(one: DueTrigger, payload: Mapping[str, Any]) -> RunTemplate:
        made.append(one.name)
        return make(one, payload)

    judged = decide.judge(event(), [trigger("t1"), trigger("t2", number=2)], noted)
    next(judged)
    assert made == ["t1"], "whoever judges may breathe between two triggers"


@given(worlds())
def test_plans_stay_the_same_when_they_are_written_in_parts(world: Any) -> None:
    events, triggers, held = world
    together = plan_batch(events, triggers, held, make)
    parts: list[EventPlan] = []
    known = dict(held)
    for one in events:
        parts += plan_batch([one], triggers, known, make)
        known.update({(p.event.type, p.event.key): p.event.id for p in parts[-1:] if p.keeps_key})
    assert [(p.outcome, p.starts, p.keeps_key) for p in parts] == [(p.outcome, p.starts, p.keeps_key) for p in together]
