"""What is counted: waiting and held runs by the leader, durations and waits by whoever settles, slots that nobody fires by the watchdog."""

from __future__ import annotations

from typing import Any

import pytest

from toban_coordinator.leadership.lock_calls import LockCalls
from toban_coordinator.loops.watchdog import Watchdog
from toban_coordinator.ports.leader import LeaderView
from toban_fencing.election_types import LockOutcome
from toban_observability import metrics
from toban_testing.clock import FakeClock
from toban_testing.fake_coordinator import FixedSettings


def series(name: str, label: str) -> dict[str, float]:
    return {labels[label]: value for labels, value in metrics.samples(name)}


def counted(name: str, **labels: str) -> float:
    found = metrics.REGISTRY.get_sample_value(name, labels)
    return found or 0.0


class Role:
    """A coordinator that is what the test says."""

    def __init__(self) -> None:
        self.role = "subleader"

    def view(self) -> LeaderView:
        return LeaderView(role=self.role, epoch=7)


@pytest.mark.seed(187)
async def test_the_leader_counts_what_waits_and_what_is_held(world: Any, make: Any) -> None:
    await world.apply(make.job())
    submitted = counted("toban_runs_submitted_total", origin="demand")
    await world.start("hello", count=3)
    assert counted("toban_runs_submitted_total", origin="demand") == submitted + 3
    await world.turn("cluster_metrics")
    waiting = series("toban_runs_pending", "reason")
    assert (waiting["no_executor"], sum(waiting.values())) == (3, 3)
    assert series("toban_runs_live", "state")["PENDING"] == 3
    assert series("toban_runs_pending_oldest_seconds", "reason")["no_executor"] > 0
    await world.executor(slots=2)
    await world.turn("assign")
    await world.sql(
        "UPDATE scheduler.runs_live SET dispatched_at = now() - interval '5 minutes' WHERE state = 'ASSIGNED'"
    )
    await world.turn("cluster_metrics")
    assert series("toban_runs_pending", "reason")["slots"] == 1
    live = series("toban_runs_live", "state")
    assert (live["PENDING"], live["ASSIGNED"]) == (1, 2)
    assert series("toban_runs_oldest_seconds", "state")["ASSIGNED"] >= 300
    metrics.clear_leader_gauges()
    assert metrics.samples("toban_runs_live") == []


@pytest.mark.seed(187)
async def test_ends_are_counted_with_how_late_their_runs_began(world: Any, make: Any) -> None:
    lag, ends = "toban_run_start_lag_seconds", "toban_runs_finished_total"
    await world.apply(make.job())
    await world.executor(slots=2)
    good, bad = await world.start("hello", count=2)
    await world.sql("UPDATE scheduler.runs_live SET scheduled_for = now() - interval '90 seconds'")
    seconds, starts = counted(f"{lag}_sum", origin="demand"), counted(f"{lag}_count", origin="demand")
    succeeded, failed = counted(ends, state="SUCCEEDED"), counted(ends, state="FAILED")
    await world.turn("assign")
    await world.report(world.key(good), make.outcome())
    await world.report(world.key(bad), make.outcome("FAILED"))
    assert (counted(ends, state="SUCCEEDED"), counted(ends, state="FAILED")) == (succeeded + 1, failed + 1)
    assert counted(f"{lag}_count", origin="demand") == starts + 2
    assert 2 * 90 <= counted(f"{lag}_sum", origin="demand") - seconds < 2 * 90 + 60


@pytest.mark.seed(187)
async def test_the_time_for_the_leader_lock_is_measured() -> None:
    """By the clock of the coordinator, for each call."""
    clock = FakeClock()

    class SlowLock:
        async def try_lock(self) -> LockOutcome:
            await clock.advance(0.25)
            return LockOutcome.HELD

    lock: Any = SlowLock()
    calls = LockCalls(lock=lock, members=lock, worker_id=1, clock=clock)
    before = counted("toban_leader_lock_seconds_sum", call="acquire")
    await calls.try_lock()
    assert counted("toban_leader_lock_seconds_sum", call="acquire") == pytest.approx(before + 0.25)


async def test_overdue_slots_are_seen_from_outside(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() + interval '1 hour'")
    role = Role()
    dog = Watchdog(pool=world.pool, leader=role, settings=FixedSettings())
    looks = counted("toban_watchdog_looks_total")
    await dog.run_once()
    assert (counted("toban_watchdog_alarm"), counted("toban_watchdog_overdue_seconds")) == (0, 0)
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() - interval '1 minute'")
    await dog.run_once()
    assert counted("toban_watchdog_alarm") == 1
    assert 59 < counted("toban_watchdog_overdue_seconds") < 90
    await world.turn("cluster_metrics")
    assert metrics.samples("toban_schedules_overdue_seconds")[0][1] > 59
    role.role = "leader"
    await dog.run_once()
    assert counted("toban_watchdog_alarm") == 0
    assert counted("toban_watchdog_looks_total") == looks + 2
