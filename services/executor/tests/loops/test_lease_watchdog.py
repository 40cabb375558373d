"""The executor enforces the lease's deadline behind its guards, and ends the incarnation when nothing of it can go on (docs/fencing.md 3.7)."""

from datetime import timedelta
from typing import Any

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard_types import FreezeTurn
from toban_executor.loops.heartbeat import (
    FREEZE_SECONDS,
    IDLE_SECONDS,
    WATCHDOG_SECONDS,
    LeaseWatchdog,
)
from toban_executor.ports.coordinator import Registered
from toban_fencing.executor_lease import Instant

KEY = AttemptKey(1, 101)
REGISTERED = Registered(
    worker_id=1, incarnation_key="k", lease_ms=10_000, margin_ms=300, heartbeat_seconds=2.0, epoch=5
)


@pytest.fixture
def world(heartbeat_world: Any) -> Any:
    return heartbeat_world


async def test_a_lost_lease_ends_the_incarnation_and_kills_what_still_runs(world: Any) -> None:
    watchdog, lease = LeaseWatchdog(attempts=world.attempts, clock=world.clock), world.attempts.lease
    await watchdog.run_once()
    lease.begin(REGISTERED)
    lease.granted(Instant(world.clock.boottime(), world.clock.wall().timestamp()))
    world.attempts.idle.clear()
    await watchdog.run_once()
    assert (lease.over, world.enforced) == ("", [])
    await world.clock.advance(9.7)
    await watchdog.run_once()
    assert (lease.over, world.enforced) == ("the lease ran out", []), "the guards come first"
    await world.clock.advance(0.2)
    await watchdog.run_once()
    assert world.enforced == [0.2]


def frozen(on: bool = True, seconds: float = 0.0) -> FreezeTurn:
    return FreezeTurn(key=KEY, frozen=on, seconds=seconds, at_ns=1)


async def test_an_incarnation_with_a_frozen_job_goes_on_after_its_lease(world: Any) -> None:
    """And while a job may still be found frozen; without any it is over."""
    watchdog, attempts = LeaseWatchdog(attempts=world.attempts, clock=world.clock), world.attempts
    lease = attempts.lease
    lease.begin(REGISTERED)
    lease.granted(Instant(world.clock.boottime(), world.clock.wall().timestamp()))
    attempts.idle.clear()
    attempts.lease_end.opened(KEY, "freeze")
    await world.clock.advance(9.7)
    await watchdog.run_once()
    assert not lease.over
    attempts.freeze_turned(frozen())
    await world.clock.advance(100.0)
    await watchdog.run_once()
    assert not lease.over
    assert world.enforced == [100.0], "the second enforcer looks at frozen trees, too"
    attempts.lease_end.closed(KEY)
    await watchdog.run_once()
    assert lease.over == "the lease ran out"


async def test_a_step_of_the_wall_clock_ends_no_incarnation_and_enforces_by_the_other_clock(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NTP has stepped the clock by an hour: jobs are stopped, the next grant lets them go on, and nothing has been late for an hour."""
    watchdog, attempts, clock = LeaseWatchdog(attempts=world.attempts, clock=world.clock), world.attempts, world.clock
    lease, step, wall = attempts.lease, timedelta(0), clock.wall
    monkeypatch.setattr(clock, "wall", lambda: wall() + step)
    lease.begin(REGISTERED)
    lease.granted(Instant(clock.boottime(), clock.wall().timestamp()))
    attempts.idle.clear()
    await clock.advance(1.0)
    step = timedelta(hours=1)
    await watchdog.run_once()
    assert not lease.valid, "nothing may start before the next grant"
    assert (lease.over, world.enforced) == ("", []), "the guards come first"
    await clock.advance(0.2)
    await watchdog.run_once()
    assert (lease.over, world.enforced, world.doubts) == ("", [0.2], [True])
    lease.granted(Instant(clock.boottime(), clock.wall().timestamp()))
    await watchdog.run_once()
    assert lease.valid and not lease.over
    step = timedelta(hours=2)
    await clock.advance(9.0)
    await watchdog.run_once()
    assert not lease.over
    await clock.advance(0.8)
    await watchdog.run_once()
    assert lease.over == "the lease ran out", "no grant came, and CLOCK_BOOTTIME says so as well"
    assert world.doubts[-1] is False


async def test_a_job_that_is_not_found_frozen_does_not_keep_the_incarnation(world: Any) -> None:
    watchdog, attempts = LeaseWatchdog(attempts=world.attempts, clock=world.clock), world.attempts
    attempts.lease.begin(REGISTERED)
    attempts.lease.granted(Instant(world.clock.boottime(), world.clock.wall().timestamp()))
    attempts.idle.clear()
    attempts.lease_end.opened(KEY, "freeze")
    await world.clock.advance(9.7 + FREEZE_SECONDS)
    await watchdog.run_once()
    assert attempts.lease.over


async def test_without_attempts_the_deadline_is_looked_at_once_a_second(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchdog, attempts = LeaseWatchdog(attempts=world.attempts, clock=world.clock), world.attempts
    assert watchdog.wait_seconds() == IDLE_SECONDS, "no lease, no attempt"
    attempts.lease.begin(REGISTERED)
    attempts.lease.granted(Instant(world.clock.boottime(), world.clock.wall().timestamp()))
    assert watchdog.wait_seconds() == IDLE_SECONDS
    await world.clock.advance(9.7 - IDLE_SECONDS)
    assert watchdog.wait_seconds() == WATCHDOG_SECONDS, "the lease is about to end"
    attempts.lease.granted(Instant(world.clock.boottime(), world.clock.wall().timestamp()))
    woken: list[float] = []
    attempts.on_live = lambda: woken.append(watchdog.wait_seconds())
    monkeypatch.setattr(type(attempts.book), "free_slots", attempts.book.slots - 1)
    attempts._note_live()
    attempts._note_live()
    assert woken == [WATCHDOG_SECONDS], "the first attempt wakes the loop, once"
