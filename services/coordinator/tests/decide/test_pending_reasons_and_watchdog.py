"""Why runs wait, and when the outside watchdog barks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from toban_coordinator.decide.runs import pending_reasons
from toban_coordinator.decide.runs.pending_reasons import Group, Queue
from toban_coordinator.decide.schedules import watchdog
from toban_domain.job import JobSpec, SelectorSpec, StepSpec
from toban_domain.lease import ExecutorState
from toban_domain.placement import ExecutorLoad
from toban_domain.run import RunState

KEY = (1, 1)


def executor(**labels: str) -> ExecutorLoad:
    return ExecutorLoad(
        incarnation="i",
        worker_id=1,
        instance="x",
        address="a:1",
        state=ExecutorState.ON,
        slots=1,
        held=1,
        load=0.0,
        labels=labels,
        last_heartbeat_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def spec(**labels: str) -> JobSpec:
    return JobSpec(name="job", steps=(StepSpec(id="a", body={"argv": ["true"]}),), selector=SelectorSpec(labels=labels))


def group(state: RunState = RunState.PENDING, *, retry: bool = False, runs: int = 1, oldest: float = 1.0) -> Group:
    return Group(state=state, definition=KEY, retry=retry, runs=runs, oldest=oldest)


@pytest.mark.parametrize(
    ("waits", "executors", "specs", "reason"),
    [
        (group(), [executor()], {KEY: spec()}, "slots"),
        (group(), [], {KEY: spec()}, "no_executor"),
        (group(), [executor(zone="b")], {KEY: spec(zone="a")}, "no_executor"),
        (group(), [executor(zone="a")], {KEY: spec(zone="a")}, "slots"),
        (group(retry=True), [], {KEY: spec()}, "retry"),
        (group(), [executor()], {}, "unreadable"),
        (group(RunState.DEFERRED), [executor()], {}, "deferred"),
        (group(RunState.WAITING_WORKER), [], {}, "external_worker"),
    ],
)
def test_each_reason(
    waits: Group, executors: list[ExecutorLoad], specs: dict[tuple[int, int], JobSpec], reason: str
) -> None:
    found = pending_reasons.waiting([waits], executors, specs)
    assert {name for name, queue in found.items() if queue.runs} == {reason}
    assert tuple(found) == pending_reasons.REASONS


def test_groups_of_one_reason_are_one_queue() -> None:
    found = pending_reasons.waiting([group(runs=2, oldest=7.0), group(runs=3, oldest=5.0)], [executor()], {KEY: spec()})
    assert found["slots"] == Queue(5, 7.0)


@pytest.mark.parametrize(
    ("overdue", "tick", "alert"), [(0, 1, False), (22, 1, False), (22.1, 1, True), (100, 60, False)]
)
def test_the_watchdog_barks_at_slots_that_are_long_due(overdue: float, tick: float, alert: bool) -> None:
    assert watchdog.look(overdue, tick_seconds=tick) == watchdog.Watch(alert=alert, overdue=overdue)
