"""Plans of firing: however time, outages, pauses and a disabled job cut them, each slot is settled once, in order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from toban_coordinator.decide.schedules import fire
from toban_coordinator.decide.schedules.skipped_slots import SHORT, count, has_to_be_counted, pass_by
from toban_domain.fire_plan import DueSchedule, FirePlan, RunTemplate
from toban_domain.schedule import CatchUpSpec, RuleSpec, ScheduleSpec
from toban_schedule import Rule, slots

BEGIN = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)
RULES = [
    RuleSpec(interval_seconds=7),
    RuleSpec(interval_seconds=600),
    RuleSpec(cron="*/20 * * * * *"),
    RuleSpec(cron="*/5 1-3 * * *", timezone="Europe/Berlin"),
    RuleSpec(cron="*/5 * * * *", timezone="Europe/Berlin"),
    RuleSpec(cron="30 2 * * *", timezone="Europe/Berlin", gap="run_after"),
    RuleSpec(interval_seconds=60, end="2026-03-29T03:00:00Z"),
]


class Firing(RuleBasedStateMachine):
    """One schedule, its leader and its operators; `settled` are the slots with what became of each."""

    @initialize(spec=st.sampled_from(RULES), catch_up=st.sampled_from(["all", "one", "skip"]), most=st.integers(1, 300))
    def begin(self, spec: RuleSpec, catch_up: str, most: int) -> None:
        """Applied at BEGIN."""
        self.rule = Rule.of(spec)
        self.now = BEGIN
        self.job_enabled = True
        self.settled: list[tuple[datetime, str]] = []
        # Slots that have their runs before missed ones.
        self.early: set[datetime] = set()
        schedule = ScheduleSpec(name="s", job="j", rule=spec, catch_up=CatchUpSpec(policy=catch_up, max=most))
        self.due = DueSchedule(
            id=1,
            version=1,
            spec=schedule,
            next_run_at=self.rule.next_slot(BEGIN),
            fire_retry_count=0,
            definition_id=1,
            definition_version=1,
            job_enabled=True,
        )

    @rule(seconds=st.one_of(st.integers(1, 60), st.integers(1, 20_000)))
    def time_passes(self, seconds: int) -> None:
        """Nobody leads for that long."""
        self.now += timedelta(seconds=seconds)

    @rule(enabled=st.booleans())
    def the_job_changes(self, enabled: bool) -> None:
        """The job is disabled or enabled."""
        self.due = replace(self.due, job_enabled=enabled)

    @rule(ahead=st.sampled_from([0, 30, 300]))
    def the_leader_fires(self, ahead: int) -> None:
        """Turns until nothing in view is left."""
        until = self.now + timedelta(seconds=ahead)
        while self.due.next_run_at is not None and self.due.next_run_at <= until:
            before = self.due.next_run_at
            self.settle_some(until)
            assert self.due.next_run_at is None or self.due.next_run_at > before, "every plan gets further"

    @rule(ahead=st.sampled_from([0, 30]))
    def the_leader_is_still_at_missed_slots(self, ahead: int) -> None:
        """What is due now goes first, and then some of the missed ones."""
        until = self.now + timedelta(seconds=ahead)
        oldest = self.now - timedelta(seconds=fire.MISSED_AFTER_SECONDS)
        if self.due.next_run_at is None or self.due.next_run_at >= oldest:
            return
        template = RunTemplate(payload="{}")
        plan = fire.plan_now(self.due, self.rule, template, now=self.now, until=until, made=self.early)
        if plan is not None:
            assert plan.next_run_at == self.due.next_run_at and not plan.skips and not self.early & set(plan.fires)
            assert all(oldest <= slot <= until for slot in plan.fires)
            assert [slot for part in fire.cut(plan) or [plan] for slot in part.fires] == list(plan.fires)
            assert all(part.next_run_at == self.due.next_run_at for part in fire.cut(plan))
            self.early |= set(plan.fires)
        self.settle_some(until)

    def settle_some(self, until: datetime) -> None:
        """One plan."""
        made_from = RunTemplate(payload="{}")
        plan = fire.plan(self.due, self.rule, made_from, now=self.now, until=until, made=self.early)
        assert not self.early & set(plan.fires), "no slot has two runs"
        self.take(plan)

    @rule()
    def an_operator_resumes(self) -> None:
        """It was paused since its next slot; what passed is one stretch."""
        if self.due.next_run_at is not None and self.due.next_run_at <= self.now:
            plan = pass_by(self.due, self.rule, until=self.now, outcome="paused", message="")
            assert len(plan.skips) == 1 and plan.fires == ()
            self.take(plan)

    def take(self, plan: FirePlan) -> None:
        """What the write of a plan does."""
        made = [(slot, "fired") for slot in plan.fires]
        for skip in plan.skips:
            found = slots(self.rule, skip.first - timedelta(microseconds=1), skip.last, 100_000)
            assert len(found) == skip.slots and found[0] == skip.first and found[-1] == skip.last
            made += [(slot, skip.outcome) for slot in found]
        passed = {slot for slot in self.early if plan.next_run_at is None or slot < plan.next_run_at}
        self.early -= passed
        # A stretch that is passed by covers them.
        passed -= {slot for slot, outcome in made if outcome == "paused"}
        self.settled += sorted([*made, *((slot, "fired") for slot in passed)])
        self.due = replace(self.due, next_run_at=plan.next_run_at)

    @invariant()
    def each_slot_is_settled_once_and_in_order(self) -> None:
        """The settled slots are all slots from the beginning up to the next one."""
        if not hasattr(self, "due"):
            return
        until = (
            self.due.next_run_at - timedelta(microseconds=1) if self.due.next_run_at else BEGIN + timedelta(days=999)
        )
        expected = slots(self.rule, BEGIN, until, len(self.settled) + 1)
        assert [slot for slot, _ in self.settled] == expected


def due_at(first: datetime) -> DueSchedule:
    return DueSchedule(
        id=1,
        version=1,
        spec=ScheduleSpec(name="s", job="j", rule=RULES[0]),
        next_run_at=first,
        fire_retry_count=0,
        definition_id=1,
        definition_version=1,
        job_enabled=True,
    )


Firing.TestCase.settings = settings(stateful_step_count=15)
TestFiring = Firing.TestCase


def settled(
    schedule: DueSchedule, now: datetime, until: datetime, made: Collection[datetime]
) -> tuple[list[datetime], list[datetime], datetime | None]:
    """What `plan` fires and skips of all slots up to `until`, in as many plans as it takes, and the next slot; those in `made` have their runs."""
    compiled = Rule.of(schedule.spec.rule)
    fires: list[datetime] = []
    skips: list[datetime] = []
    while schedule.next_run_at is not None and schedule.next_run_at <= until:
        part = fire.plan(schedule, compiled, RunTemplate(payload="{}"), now=now, until=until, made=made)
        fires += part.fires
        skips += [slot for s in part.skips for slot in slots(compiled, s.first - fire.INSTANT, s.last, 100_000)]
        schedule = replace(schedule, next_run_at=part.next_run_at)
    return fires, skips, schedule.next_run_at


@given(
    spec=st.sampled_from(RULES),
    catch_up=st.builds(CatchUpSpec, policy=st.sampled_from(["all", "one", "skip"]), max=st.integers(1, 300)),
    # Some leave a slot at the very border of what is missed.
    missed=st.one_of(st.integers(16, 20_000), st.integers(1, 30).map(lambda n: 15 + 600 * n)),
    ahead=st.sampled_from([0, 30, 2000]),
    enabled=st.booleans(),
)
def test_slots_of_now_that_go_before_missed_ones_are_those_that_one_plan_would_fire(
    spec: RuleSpec, catch_up: CatchUpSpec, missed: int, ahead: int, enabled: bool
) -> None:
    """`plan_now` changes when a slot is fired, and nothing else."""
    now = BEGIN + timedelta(seconds=missed)
    until, oldest = now + timedelta(seconds=ahead), now - timedelta(seconds=fire.MISSED_AFTER_SECONDS)
    first = Rule.of(spec).next_slot(BEGIN)
    assume(first is not None and first < oldest)
    schedule = replace(
        due_at(first), spec=ScheduleSpec(name="s", job="j", rule=spec, catch_up=catch_up), job_enabled=enabled
    )
    fires, skips, following = settled(schedule, now, until, ())
    plan = fire.plan_now(schedule, Rule.of(spec), RunTemplate(payload="{}"), now=now, until=until)
    early = plan.fires if plan is not None else ()
    assert list(early) == [slot for slot in fires if slot >= oldest][: fire.MAX_FIRES]
    assert settled(schedule, now, until, early) == ([s for s in fires if s not in early], skips, following)


@given(
    spec=st.sampled_from(RULES),
    begin=st.integers(0, 200_000),
    to_count=st.integers(0, 200_000),
    to_end=st.integers(0, 4000),
)
def test_a_stretch_that_is_counted_in_two_is_the_same_as_in_one(
    spec: RuleSpec, begin: int, to_count: int, to_end: int
) -> None:
    compiled = Rule.of(spec)
    first = compiled.next_slot(BEGIN + timedelta(seconds=begin))
    if first is None:
        return
    schedule = replace(due_at(first), spec=ScheduleSpec(name="s", job="j", rule=spec))
    middle = first + timedelta(milliseconds=to_count * 997)
    until = middle + timedelta(milliseconds=to_end * 991)
    counted = count(schedule, compiled, middle)
    asked = {"until": until, "outcome": "paused", "message": ""}
    whole = pass_by(schedule, compiled, **asked)
    assert pass_by(schedule, compiled, **asked, counted=counted) == whole
    # What was counted for another version, from another slot, or for longer is of no use.
    for other in (replace(counted, version=2), replace(counted, first=BEGIN), replace(counted, until=until + SHORT)):
        strange = replace(other, slots=12345)
        assert pass_by(schedule, compiled, **asked, counted=strange) == whole
        assert has_to_be_counted(schedule, compiled, strange, until) is (until - first > SHORT)
    assert not has_to_be_counted(schedule, compiled, counted, until)


def test_without_a_rule_only_the_stored_slot_is_known() -> None:
    due = due_at(BEGIN)
    plan = pass_by(due, None, until=BEGIN, outcome="submit_failed", message="no rule")
    assert [(skip.first, skip.last, skip.slots) for skip in plan.skips] == [(BEGIN, BEGIN, 1)]
    assert plan.next_run_at is None
    nothing = pass_by(due, None, until=BEGIN - timedelta(seconds=1), outcome="submit_failed", message="no rule")
    assert nothing.skips == ()


@pytest.mark.parametrize(
    ("stored", "fired", "following"),
    [
        # As the clocks show it: nothing has changed.
        ("2026-10-01T09:00", ["2026-10-01T09:00"], "2026-10-02T09:00"),
        # Foreseen an hour too early: 09:00 comes later, and once.
        ("2026-10-01T08:00", [], "2026-10-01T09:00"),
        # Foreseen an hour too late: 09:00 has passed without a run.
        ("2026-10-01T10:00", ["2026-10-01T10:00"], "2026-10-02T09:00"),
    ],
)
def test_a_zone_that_got_other_rules_fires_each_local_time_once(stored: str, fired: list[str], following: str) -> None:
    """In a zone without changes of its own, so that newer data of zones do not change what is right here."""

    def at(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    spec = RuleSpec(cron="0 9 * * *", timezone="Etc/GMT")
    due = DueSchedule(
        id=1,
        version=1,
        spec=ScheduleSpec(name="s", job="j", rule=spec),
        next_run_at=at(stored),
        fire_retry_count=0,
        definition_id=1,
        definition_version=1,
        job_enabled=True,
    )
    plan = fire.plan(due, Rule.of(spec), RunTemplate(payload="{}"), now=at(stored), until=at(stored))
    assert (list(plan.fires), plan.next_run_at) == ([at(text) for text in fired], at(following))


@pytest.mark.parametrize(
    ("last", "hour"),
    [
        # It ran at 08:00, so 10:00 was foreseen an hour too early.
        (8, 10),
        # It ran at 06:00, so 08:00 was foreseen an hour too late, and has passed.
        (6, 9),
        # It ran at what is no slot any more, or long ago, or never: each of the two may be meant.
        (7, 10),
        (2, 10),
        (None, 10),
        # An edit took that run back.
        (10, 10),
    ],
)
def test_a_zone_that_got_other_rules_doubles_no_run_of_a_schedule_of_every_two_hours(
    last: int | None, hour: int
) -> None:
    spec = RuleSpec(cron="0 */2 * * *", timezone="Etc/GMT")
    day = datetime(2026, 10, 1, tzinfo=UTC)
    due = replace(
        due_at(day + timedelta(hours=9)),
        spec=ScheduleSpec(name="s", job="j", rule=spec),
        last_run_at=None if last is None else day + timedelta(hours=last),
    )
    assert fire.first_slot(due, Rule.of(spec)) == day + timedelta(hours=hour)


def test_a_plan_is_cut_down_to_single_slots_that_follow_each_other() -> None:
    times = [BEGIN + timedelta(seconds=10 * n) for n in range(6)]
    skips = fire.ledger_skips(times[:2], "catch_up", "missed")
    whole = FirePlan(
        schedule=due_at(times[0]),
        template=RunTemplate(payload="{}"),
        fires=tuple(times[2:5]),
        skips=skips,
        next_run_at=times[5],
    )
    parts = [whole]
    while any(fire.cut(part) for part in parts):
        parts = [piece for part in parts for piece in (fire.cut(part) or (part,))]
    assert [(part.fires, part.skips) for part in parts] == [((), skips), *(((time,), ()) for time in times[2:5])]
    # Each is conditional on the slot that the one before left as the next.
    assert [part.schedule.next_run_at for part in parts] == [times[0], *times[2:5]]
    assert [part.next_run_at for part in parts] == times[2:]


@pytest.mark.seed(177)
def test_the_delays_after_failures_grow() -> None:
    delays = [fire.retry_seconds(failures) for failures in range(1, fire.FIRE_RETRIES + 1)]
    assert delays == [2, 4, 8, 16, 32]
