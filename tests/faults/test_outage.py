"""PostgreSQL, all coordinators, or Redis and PostgreSQL are away while 50 jobs run: it costs time and no job (docs/fencing.md 3.7; I3, I6).

The jobs prove it themselves: a lock that only one execution of a run can hold, a record that one process writes from begin to end, and stamps that
lie within the leases of their executor.
"""

import logging
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.lease_record import FREEZE_ALLOWANCE, SAFE_SECONDS, LeaseRecord, check_undisturbed
from toban_testing.stack_fixtures import admin_of

pytestmark = pytest.mark.e2e
LOG = logging.getLogger(__name__)
RUNS = 50
# The shortest that the settings permit.
SHORT_LEASE = 4.3
# The time until all of them have been granted a lease again, on a busy machine.
RECOVERY_SECONDS = 60.0


@dataclass(frozen=True)
class Outage:
    """What is away (processes by name, or all coordinators), and for how many seconds."""

    what: str
    seconds: int

    def ends(self, stack: Stack) -> list[str]:
        """The names of what it takes away."""
        return [name for name in stack.processes() if name in self.what.split("+") or name[:11] == self.what]


def outages(*those: Outage, lease: float = 10, long: bool = True) -> Any:
    marks = [pytest.mark.hours] if long else []
    name = "-then-".join(f"{one.what}-{one.seconds}s" for one in those)
    return pytest.param(those, lease, id=f"{name}-lease-{lease:g}s", marks=marks)


@pytest.mark.parametrize(
    ("those", "lease"),
    [
        outages(Outage("postgres", 8), Outage("coordinator", 8), lease=SHORT_LEASE, long=False),
        outages(Outage("postgres", 8), Outage("postgres", 20)),
        outages(Outage("postgres", 60)),
        outages(Outage("coordinator", 60)),
        outages(Outage("redis+postgres", 20), Outage("redis+postgres", 60)),
    ],
)
def test_an_outage_costs_time_and_no_job(
    leased_stack: Callable[..., Any], those: tuple[Outage, ...], lease: float
) -> None:
    with leased_stack(lease=lease, slots=RUNS) as (stack, record), admin_of(stack) as admin:
        admin.apply(record.job("ticks", pause=0.5, max_lost=0))
        runs = admin.start("ticks", count=RUNS)
        admin.until(lambda: all(record.lines(run) for run in runs), seconds=60, of="all jobs run")
        held = {run: admin.run(run).token for run in runs}
        for outage in those:
            undergo(outage, stack, admin, record, runs, lease=lease)
        record.end()
        turns = ["frozen", "thawed"] * sum(outage.seconds > lease for outage in those)
        check_ended(admin, record, held, turns)
        worst = max(record.lateness(run) for run in runs)
        LOG.info("jobs ran on for at most %.2f s after a deadline (allowance %.1f s)", worst, FREEZE_ALLOWANCE)
        assert worst <= SAFE_SECONDS


def undergo(
    outage: Outage, stack: Stack, admin: AdminClient, record: LeaseRecord, runs: list[int], *, lease: float
) -> None:
    """End it as a crash does (PostgreSQL: `-m immediate`), start it again, and wait until every job goes on."""
    pause, clock = threading.Event(), SystemClock()
    names = outage.ends(stack)
    for name in names:
        stack.kill(name, signal.SIGQUIT if name == "postgres" else signal.SIGKILL)
    away = clock.boottime()
    pause.wait(away + outage.seconds - clock.boottime())
    back = clock.boottime()
    for name in names:
        stack.start(name)
    served = clock.boottime()
    # One that has ended is found by `check_ended`, with the reason.
    admin.until(
        lambda: all(record.lines(run)[-1].at > back or admin.run(run).state != "RUNNING" for run in runs),
        seconds=RECOVERY_SECONDS,
        of="every job goes on",
    )
    LOG.info("%s: all jobs go on %.1f s after it serves again", outage, clock.boottime() - served)
    # Where it was longer than the lease they stood still.
    lines = [line for run in runs for line in record.lines(run)]
    assert not [line for line in lines if away + lease + SAFE_SECONDS < line.at < back]


def check_ended(admin: AdminClient, record: LeaseRecord, held: dict[int, int], turns: list[str]) -> None:
    """Asserts that every run succeeds in the attempt that it had, by one process, and shows when it was frozen."""
    for run_id, token in held.items():
        run = admin.until_ended(run_id, seconds=60)
        found = (run.state, run.token, run.attempt, run.lost_count)
        assert found == ("SUCCEEDED", token, 1, 0), f"run {run_id}: {found} {run.error_summary}"
        assert [event.type for event in run.events if event.type in ("frozen", "thawed")] == turns
        check_undisturbed(record.lines(run_id))
