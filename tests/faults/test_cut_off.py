"""An executor that the network cuts off: its runs are given away, and its frozen jobs never run again (docs/fencing.md 3.7, 3.8; I3, I7).

While one of three coordinators is reachable it keeps its jobs.
"""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from toban_runtime.clock import SystemClock
from toban_stack.processes import alive
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.admin_client import AdminClient
from toban_testing.lease_record import SAFE_SECONDS, LeaseRecord, check_alone
from toban_testing.links import Links
from toban_testing.stack_fixtures import admin_of

pytestmark = pytest.mark.e2e
LOG = logging.getLogger(__name__)
CLOCK = SystemClock()
VICTIM = "executor-1"
RUNS = 10
# The shortest lease that the settings permit, and the default.
CASES = [pytest.param(7, 4.3, id="short"), pytest.param(60, 10, id="60s", marks=pytest.mark.hours)]


@contextmanager
def linked(stack: Stack, file: Path) -> Iterator[Links]:
    """The victim starts again, on links that can be cut."""
    record = stack.processes()[VICTIM]
    with Links(file=file, node=VICTIM, own=record.address, others=[*stack.coordinators, *stack.log_archivers]) as links:
        stack.kill(VICTIM, signal.SIGTERM)
        assert wait_until(lambda: not alive(record), 20)
        stack.start(VICTIM)
        yield links


def on(admin: AdminClient) -> dict[str, int]:
    """The executors that take new work, with their worker ids."""
    return {one.node_id: one.worker_id for one in admin.cluster().executors if one.state == "on"}


def start(admin: AdminClient, record: LeaseRecord) -> dict[int, int]:
    """Runs on both executors; those of the victim with their tokens, once all run."""
    admin.until(lambda: len(on(admin)) == 2, seconds=20, of="both executors are on")
    admin.apply(record.job("ticks", pause=0.2, lock=False))
    runs = admin.start("ticks", count=RUNS)
    admin.until(lambda: all(record.lines(run) for run in runs), seconds=30, of="all jobs run")
    held = {one.id: one.token for one in map(admin.run, runs) if one.worker_id == on(admin)[VICTIM]}
    assert 0 < len(held) < RUNS, "both executors have work"
    return held


@pytest.mark.parametrize(("seconds", "lease"), CASES)
def test_jobs_of_an_executor_that_was_cut_off_never_run_again(
    leased_stack: Callable[..., Any], tmp_path: Path, seconds: int, lease: float
) -> None:
    with (
        leased_stack(lease=lease, coordinators=3) as (stack, record),
        admin_of(stack) as admin,
        linked(stack, tmp_path / "links.json") as links,
    ):
        held = start(admin, record)
        check_one_is_enough(stack, admin, links, held, seconds)
        cut_off(admin, record, links, held, seconds)
        record.end()
        for run_id in held:
            run = admin.until_ended(run_id, seconds=30)
            assert (run.state, run.lost_count, run.attempt) == ("SUCCEEDED", 1, 1)
            check_alone(record.lines(run_id))
            assert record.lateness(run_id) <= SAFE_SECONDS


def check_one_is_enough(stack: Stack, admin: AdminClient, links: Links, held: dict[int, int], seconds: float) -> None:
    """The leader and another coordinator are out of its reach: no job is frozen, and no run moves."""
    leader = admin.cluster().leader_address
    links.partition(leader, next(address for address in stack.coordinators if address != leader))
    threading.Event().wait(seconds)
    for run_id, token in held.items():
        run = admin.run(run_id)
        assert (run.token, run.state, run.lost_count) == (token, "RUNNING", 0)
        assert not [event for event in run.events if event.type in ("frozen", "thawed")]
    links.heal()


def cut_off(admin: AdminClient, record: LeaseRecord, links: Links, held: dict[int, int], seconds: float) -> None:
    """Nothing is in its reach: its runs go on elsewhere; in the end it is another incarnation."""
    cut = CLOCK.boottime()
    links.partition()
    for run, token in held.items():
        at = admin.until(lambda run=run, token=token: begun_after(record, run, token), seconds=30, of="runs move")
        LOG.info("run %d goes on elsewhere %.1f s after the cut", run, at - cut)
    threading.Event().wait(cut + seconds - CLOCK.boottime())
    before = max(one.worker_id for one in admin.cluster().executors)
    links.heal()
    # It learns that it was fenced, and ends what is frozen.
    admin.until(lambda: max(on(admin).values()) > before, seconds=30, of="the executor registers again")


def begun_after(record: LeaseRecord, run: int, token: int) -> float | None:
    """When the run's next attempt began."""
    return next((line.at for line in record.lines(run) if line.token > token and line.what == "begin"), None)
