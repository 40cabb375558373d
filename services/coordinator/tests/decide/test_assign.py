"""Decisions about placing and firing: tables and properties."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.limits.limits import Admission, Need, Usage
from toban_coordinator.decide.placement import assign
from toban_coordinator.decide.schedules import fire
from toban_domain.fire_plan import DueSchedule, RunTemplate
from toban_domain.job import ConcurrencySpec, JobSpec, SelectorSpec, StepSpec
from toban_domain.lease import ExecutorState
from toban_domain.placement import DueRun, ExecutorLoad
from toban_domain.run import RunState
from toban_domain.schedule import CatchUpSpec, RuleSpec, ScheduleSpec
from toban_schedule import Rule

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def spec(**fields: Any) -> JobSpec:
    return JobSpec(name="x", steps=(StepSpec(id="a", body={"argv": ["/bin/true"]}),), **fields)


def due(number: int, **fields: Any) -> DueRun:
    given = {"state": RunState.PENDING, "origin": "demand", "slot": None, "scheduled_for": NOW, "attempt": 1}
    return DueRun(
        id=number,
        definition_id=1,
        definition_version=1,
        job_name="x",
        payload="{}",
        timeout_seconds=0,
        **{**given, **fields},
    )


def executor(number: int, **fields: Any) -> ExecutorLoad:
    given = {"state": ExecutorState.ON, "slots": 4, "held": 0, "load": 0.0, "labels": {}, "last_heartbeat_at": NOW}
    return ExecutorLoad(
        **{
            "incarnation": f"i{number}",
            "worker_id": number,
            "instance": f"e{number}",
            "address": "h:1",
            **given,
            **fields,
        }
    )


def plan(
    runs: list[DueRun], executors: list[ExecutorLoad], job: JobSpec | None = None, late: float = 0.0
) -> assign.AssignPlan:
    return assign.plan(runs, executors, {(1, 1): job or spec()}, now=NOW, late_seconds=late)


@pytest.mark.seed(87)
@given(
    runs=st.integers(0, 20),
    slots=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), max_size=5),
)
def test_slots_are_filled_and_never_overfilled(runs: int, slots: list[tuple[int, int]]) -> None:
    executors = [executor(n, slots=total, held=held) for n, (total, held) in enumerate(slots)]
    made = plan([due(n) for n in range(runs)], executors)
    taken = {e.incarnation: e.held for e in executors}
    for placed in made.placed:
        taken[placed.executor.incarnation] += 1
    assert all(taken[e.incarnation] <= max(e.slots, e.held) for e in executors)
    assert len(made.placed) == min(runs, sum(max(0, total - held) for total, held in slots))
    assert len({placed.run.id for placed in made.placed}) == len(made.placed)


@pytest.mark.seed(84)
def test_least_loaded_first_then_load_then_heartbeat() -> None:
    quiet = executor(1, load=0.1)
    fresh = executor(2, load=0.5)
    stale = executor(3, load=0.5, last_heartbeat_at=NOW - timedelta(seconds=1))
    half = executor(4, held=2)
    made = plan([due(n) for n in range(4)], [half, stale, fresh, quiet])
    assert [p.executor.worker_id for p in made.placed] == [1, 2, 3, 1]


@pytest.mark.seed(86)
def test_runs_that_may_wait_go_beyond_the_slots_when_no_slot_is_free() -> None:
    executors = [
        executor(1, slots=2, held=2, queue=3),
        executor(2, slots=2, held=1),
        executor(3, slots=2, held=2, queue=1),
    ]
    runs = [due(n, placed_on="i1") for n in range(6)]
    waits = assign.plan(
        runs, executors, {(1, 1): spec()}, now=NOW, late_seconds=0.0, may_wait=lambda _spec, _lost: True
    )
    assert [placed.executor.incarnation for placed in waits.placed] == ["i2", "i1", "i3", "i1", "i1"]
    assert waits.unplaced == {(1, 1)} and not waits.board.has_room()
    assert [placed.executor.incarnation for placed in plan(runs, executors).placed] == ["i2"]


@pytest.mark.parametrize(
    ("need", "placed"),
    [
        (Need(key="job:x", capacity=8), 3),
        (Need(key="pool:p", capacity=8, weight=2), 1),
        (Need(key="job:x", capacity=2), 0),
        (Need(key="rate:x", capacity=100, window=60), 0),
        (Need(key="group:x/a", capacity=1), 0),
    ],
)
def test_runs_hold_a_limit_while_they_wait_only_where_half_of_it_stays_free(need: Need, placed: int) -> None:
    runs = [due(n) for n in range(5)]
    made = assign.plan(
        runs,
        [executor(1, held=4, queue=10)],
        {(1, 1): spec()},
        now=NOW,
        late_seconds=0.0,
        admission=Admission({run.id: (need,) for run in runs}, {need.key: Usage(held=1)} if need.capacity > 1 else {}),
        may_wait=lambda _spec, _lost: True,
    )
    assert [one.may_wait for one in made.placed] == [True] * placed
    assert made.need_slots == made.unplaced == {(1, 1)}


def test_who_is_usable() -> None:
    others = [
        executor(2, state=ExecutorState.DRAINING),
        executor(3, state=ExecutorState.CUT),
        executor(4, drained=True),
        executor(5, last_heartbeat_at=NOW - timedelta(seconds=2.1)),
        executor(6, instance="twice"),
        executor(7, instance="twice", state=ExecutorState.DETACHED),
    ]
    assert assign.usable([executor(1), *others], NOW) == [executor(1)]
    assert assign.usable([executor(1), executor(2)], NOW, {"i1"}) == [executor(2)]


def test_a_run_goes_to_a_group_that_its_job_has_the_labels_for() -> None:
    card = executor(1, labels={"pool": "card"}, job_labels={"team": "pay"})
    pool = SelectorSpec({"pool": "card"})
    own, other, plain = spec(labels={"team": "pay"}, selector=pool), spec(labels={"team": "web"}, selector=pool), spec()
    assert [placed.executor for placed in plan([due(1)], [card], own).placed] == [card]
    for job in (other, plain):
        made = plan([due(1)], [card], job)
        assert (made.placed, made.unplaced) == ([], {(1, 1)})
        assert assign.name_ahead([(1, job)], [card]) == []
    assert [placed.executor.worker_id for placed in plan([due(1)], [card, executor(2)], plain).placed] == [2]


@pytest.mark.seed(204)
def test_selector_and_preference() -> None:
    job = spec(selector=SelectorSpec({"gpu": "yes"}))
    plain, gpu, busy = executor(1), executor(2, labels={"gpu": "yes"}, held=3), executor(3, labels={"gpu": "yes"})
    assert [p.executor for p in plan([due(1)], [plain, gpu, busy], job).placed] == [busy]
    assert [p.executor for p in plan([due(1, placed_on="i2")], [plain, gpu, busy], job).placed] == [gpu]
    made = plan([due(1)], [plain], job)
    assert made.placed == [] and made.unplaced == {(1, 1)}


def test_skips() -> None:
    overlapping = due(1, origin="slot", overlaps=True, state=RunState.ASSIGNED)
    made = plan([overlapping], [executor(1)])
    assert [(s.reason, s.source) for s in made.skips] == [("overlap", RunState.PENDING)] and len(made.releases) == 1
    allow = spec(concurrency=ConcurrencySpec("allow"))
    assert len(plan([overlapping], [executor(1)], allow).placed) == 1
    assert len(plan([due(1, origin="slot", overlaps=True, started=True)], [executor(1)]).placed) == 1
    late = due(1, scheduled_for=NOW - timedelta(seconds=61))
    assert [s.reason for s in plan([late], [executor(1)], late=60).skips] == ["late"]
    assert plan([late], [executor(1)]).skips == []
    assert plan([late], [executor(1)], spec(skip_late_after_seconds=0), late=60).skips == []
    assert plan([due(1, scheduled_for=late.scheduled_for, started=True)], [executor(1)], late=60).skips == []


@given(
    behind=st.integers(0, 3000),
    ahead=st.integers(0, 60),
    policy=st.sampled_from(["skip", "one", "all"]),
    most=st.integers(1, 400),
)
def test_every_slot_is_settled_once(behind: int, ahead: int, policy: str, most: int) -> None:
    rule_spec = RuleSpec(interval_seconds=1)
    first = NOW - timedelta(seconds=behind)
    until = NOW + timedelta(seconds=ahead)
    settled = 0
    fired: list[datetime] = []
    upcoming: datetime | None = first
    while upcoming is not None and upcoming <= until:
        schedule = DueSchedule(
            id=1,
            version=1,
            spec=ScheduleSpec(name="s", job="x", rule=rule_spec, catch_up=CatchUpSpec(policy=policy, max=most)),
            next_run_at=upcoming,
            fire_retry_count=0,
            definition_id=1,
            definition_version=1,
            job_enabled=True,
        )
        made = fire.plan(schedule, Rule.of(rule_spec), RunTemplate(payload="{}"), now=NOW, until=until)
        settled += len(made.fires) + sum(skip.slots for skip in made.skips)
        fired += made.fires
        assert made.next_run_at is not None and made.next_run_at > upcoming
        upcoming = made.next_run_at
    assert settled == behind + ahead + 1
    missed = [slot for slot in fired if slot < NOW - timedelta(seconds=fire.MISSED_AFTER_SECONDS)]
    allowed = {"skip": 0, "one": 1, "all": most}[policy]
    assert len(missed) == min(allowed, max(0, behind - int(fire.MISSED_AFTER_SECONDS)))
    assert missed == [NOW - timedelta(seconds=int(fire.MISSED_AFTER_SECONDS) + n) for n in range(len(missed), 0, -1)]


def test_few_slots_are_looked_at_again_sooner_than_many() -> None:
    small = assign.pace_seconds([executor(1)])
    assert 0 < small < assign.pace_seconds([executor(1), executor(2)]) < assign.MAX_PACE_SECONDS
    assert assign.pace_seconds([executor(1, slots=1000)]) == assign.MAX_PACE_SECONDS
    assert assign.pace_seconds([]) == assign.MAX_PACE_SECONDS
    # What waits at all of them fills the slots meanwhile.
    queued = assign.pace_seconds([executor(1, queue=16), executor(2, queue=1)])
    assert assign.pace_seconds([executor(1), executor(2)]) < queued < assign.MAX_QUEUED_PACE_SECONDS
    assert assign.pace_seconds([executor(1, queue=1000)]) == assign.MAX_QUEUED_PACE_SECONDS
    assert assign.pace_seconds([executor(1, queue=1000), executor(2)]) == assign.MAX_PACE_SECONDS
