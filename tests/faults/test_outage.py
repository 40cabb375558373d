"""PostgreSQL, all coordinators, or Redis and PostgreSQL are away while 50 jobs run: it costs time and no job (docs/fencing.md 3.7; I3, I6).

The jobs prove it themselves: a lock that only one execution of a run can hold, a record that one process writes from begin to end, and stamps that
lie within the leases of their executor.
"""

import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.lease_record import FREEZE_ALLOWANCE, SAFE_SECONDS, LeaseRecord, check_undisturbed
from toban_testing.stack_fixtures import admin_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
LOG = logging.getLogger(__name__)
RUNS = 50
# The shortest that the settings permit.
SHORT_LEASE = 4.3
# The time until all of them have been granted a lease again, on a busy machine.
RECOVERY_SECONDS = 60.0


def take_away(stack: Stack, what: str) -> list[str]:
    """End it as a crash does (PostgreSQL: `-m immediate`); the names of what is to be started again."""
    names = [name for name in stack.processes() if name in what.split("+") or (name[:11] == what == "coordinator")]
    for name in names:
        stack.kill(name, signal.SIGQUIT if name == "postgres" else signal.SIGKILL)
    return names


def begun(record: LeaseRecord, runs: list[int]) -> bool:
    return all(record.lines(run) for run in runs)


def check_outage(record: LeaseRecord, runs: list[int], away: float, back: float, *, lease: float) -> None:
    """Asserts that jobs stood still where the outage was longer than their lease, and ran nowhere without one."""
    worst = max(record.lateness(run) for run in runs)
    LOG.info("at most %.2f s after a deadline (allowance %.1f s)", worst, FREEZE_ALLOWANCE)
    assert worst <= SAFE_SECONDS
    still = (away + lease + SAFE_SECONDS, back)
    assert not [line for run in runs for line in record.lines(run) if still[0] < line.at < still[1]]


@pytest.mark.parametrize(
    ("what", "seconds", "lease"),
    [
        pytest.param("postgres", 8, SHORT_LEASE, id="postgres-8s"),
        pytest.param("coordinator", 8, SHORT_LEASE, id="coordinators-8s"),
        pytest.param("postgres", 8, 10, id="postgres-8s-within-the-lease", marks=pytest.mark.long),
        pytest.param("postgres", 20, 10, id="postgres-20s", marks=pytest.mark.long),
        pytest.param("postgres", 60, 10, id="postgres-60s", marks=pytest.mark.long),
        pytest.param("coordinator", 60, 10, id="coordinators-60s", marks=pytest.mark.long),
        pytest.param("redis+postgres", 20, 10, id="redis-and-postgres-20s", marks=pytest.mark.long),
        pytest.param("redis+postgres", 60, 10, id="redis-and-postgres-60s", marks=pytest.mark.long),
    ],
)
def test_an_outage_costs_time_and_no_job(
    leased_stack: Callable[..., Any], what: str, seconds: int, lease: float
) -> None:
    pause, clock = threading.Event(), SystemClock()
    with leased_stack(lease=lease, slots=RUNS) as (stack, record), admin_of(stack) as admin:
        admin.apply(record.job("ticks", pause=0.5, max_lost=0))
        runs = admin.start("ticks", count=RUNS)
        admin.until(lambda: begun(record, runs), seconds=60, of="all jobs run")
        held = {run: admin.run(run).token for run in runs}
        away = clock.boottime()
        gone = take_away(stack, what)
        pause.wait(away + seconds - clock.boottime())
        back = clock.boottime()
        for name in gone:
            stack.start(name)
        served = clock.boottime()
        admin.until(lambda: all_tick_since(record, runs, back), seconds=RECOVERY_SECONDS, of="every job goes on")
        LOG.info("all jobs go on %.1f s after it serves again", clock.boottime() - served)
        record.end()
        turns = ["frozen", "thawed"] if seconds > lease else []
        check_ended(admin, record, held, turns)
        check_outage(record, runs, away, back, lease=lease)


def all_tick_since(record: LeaseRecord, runs: list[int], since: float) -> bool:
    return all(record.lines(run)[-1].at > since for run in runs)


def check_ended(admin: AdminClient, record: LeaseRecord, held: dict[int, int], turns: list[str]) -> None:
    """Asserts that every run succeeds in the attempt that it had, by one process, and shows when it was frozen."""
    for run_id, token in held.items():
        run = admin.until_ended(run_id, seconds=60)
        found = (run.state, run.token, run.attempt, run.lost_count)
        assert found == ("SUCCEEDED", token, 1, 0), f"run {run_id}: {found} {run.error_summary}"
        assert [event.type for event in run.events if event.type in ("frozen", "thawed")] == turns
        check_undisturbed(record.lines(run_id))
