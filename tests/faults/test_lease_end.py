"""Executor, guard supervisor and slot supervisors are stopped and killed in every order around the end of a lease: no tree runs outside it (I3, I6).

All coordinators are away, so that each executor's lease ends; one case an executor, side by side on one stack. Where executor and guard are both
down nothing can act (docs/fencing.md 3.7): there the job ends or stops once one of them is back.
"""

import logging
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.lease_faults import GROUPS, Case, ExecutorParts, carry_out, chosen_cases, every_case, rounds
from toban_testing.lease_record import FREEZE_ALLOWANCE, SAFE_SECONDS, LeaseRecord, check_alone
from toban_testing.stack_fixtures import admin_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
LOG = logging.getLogger(__name__)
CLOCK = SystemClock()
# At once, each with one case.
MOST_EXECUTORS = 16
SLOTS = 2
# The shortest lease that the settings permit.
LEASE = 4.3
# So long after the last deadline everything is watched.
WATCH_SECONDS = 2.5


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(chosen_cases(), id="chosen"),
        *(pytest.param(every_case(group), id=group, marks=pytest.mark.hours) for group in GROUPS),
    ],
)
def test_no_tree_runs_outside_a_lease(
    leased_stack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, cases: list[Case]
) -> None:
    names = [f"executor-{n}" for n in range(1, min(len(cases), MOST_EXECUTORS) + 1)]
    monkeypatch.setenv("SIGNALS_ONLY", ",".join(names[1::2]))
    wrong: list[str] = []
    with leased_stack(lease=LEASE, executors=len(names), slots=SLOTS) as (stack, record), admin_of(stack) as admin:
        admin.apply(record.job("ticks", pause=0.1, lock=False, max_lost=100))
        for some in rounds(cases, len(names)):
            wrong += Round(stack, admin, record, dict(zip(names, some, strict=False))).run()
    assert wrong == []


class Round:
    """One case an executor."""

    def __init__(self, stack: Stack, admin: AdminClient, record: LeaseRecord, cases: dict[str, Case]) -> None:
        self.stack = stack
        self.admin = admin
        self.record = record
        self.cases = cases

    def run(self) -> list[str]:
        """What ran when it should not."""
        incarnations, runs = self.begin()
        parts = {name: ExecutorParts(self.stack, name) for name in self.cases}
        gone = [name for name in self.stack.processes() if name.startswith("coordinator")]
        for name in gone:
            self.stack.kill(name, signal.SIGKILL)
        # Until an answer that was on its way has arrived.
        threading.Event().wait(0.3)
        deadlines = {name: self.record.deadline(incarnations[name]) for name in self.cases}
        acts = [(deadlines[name] + act.at, parts[name], act) for name, case in self.cases.items() for act in case.acts]
        late = carry_out(acts)
        threading.Event().wait(max(deadlines.values()) + WATCH_SECONDS - CLOCK.boottime())
        back = self.restore(parts, gone)
        self.end(runs)
        LOG.info("signals came at most %.2f s too late", late)
        return [text for name in self.cases for text in self.judge(name, incarnations[name], runs[name], back[name])]

    def begin(self) -> tuple[dict[str, str], dict[str, list[int]]]:
        """Every slot has a job: the incarnation of each executor, and its runs."""
        self.admin.until(lambda: len(self.executors()) == len(self.cases), seconds=60, of="every executor is on")
        ids = self.admin.start("ticks", count=len(self.cases) * SLOTS)
        self.admin.until(lambda: all(self.record.lines(run) for run in ids), seconds=60, of="all jobs run")
        first = {run: self.record.lines(run)[0].incarnation for run in ids}
        incarnations = self.executors()
        return incarnations, {name: [run for run in ids if first[run] == incarnations[name]] for name in self.cases}

    def executors(self, *states: str) -> dict[str, str]:
        """Those in one of these states, `on` without any."""
        found = self.admin.cluster().executors
        return {one.node_id: one.incarnation for one in found if one.state in (states or ("on",))}

    def restore(self, parts: dict[str, ExecutorParts], gone: Sequence[str]) -> dict[str, float]:
        """Guards and executors go on or start again, then the coordinators: since when each executor is there again, CLOCK_BOOTTIME."""
        back: dict[str, float] = {}
        for name in self.cases:
            parts[name].wake()
            back[name] = CLOCK.boottime()
        for name in self.cases:
            if "E" in parts[name].killed:
                self.stack.start(name)
                back[name] = CLOCK.boottime()
        for name in gone:
            self.stack.start(name)
        return back

    def end(self, runs: dict[str, list[int]]) -> None:
        """Every run ends; what was lost has started elsewhere before.

        An executor whose guard supervisor was killed takes no work until its jobs have ended, then it is `on` with new guards.
        """
        everyone = len(self.cases)
        self.admin.until(
            lambda: len(self.executors("on", "draining")) == everyone, seconds=60, of="every executor is there again"
        )
        self.record.end()
        for run_id in (run for some in runs.values() for run in some):
            run = self.admin.until_ended(run_id, seconds=60)
            LOG.debug(
                "run %d: %s attempt %d lost %d %s", run_id, run.state, run.attempt, run.lost_count, run.error_summary
            )
            check_alone(self.record.lines(run_id))
        self.record.begin_again()

    def judge(self, name: str, incarnation: str, runs: list[int], back: float) -> list[str]:
        """A line for each job of the executor that ran outside a lease, unless nothing could act then."""
        case = self.cases[name]
        assert len(runs) == SLOTS, f"{name} had {runs}"
        found = []
        for run in runs:
            since = back if case.is_excluded else 0.0
            late = self.record.lateness(run, since=since)
            LOG.info(
                "%s %s run %d: %.2f s outside its lease%s", name, case, run, late, f", {back:.2f}" * case.is_excluded
            )
            if late > SAFE_SECONDS:
                found.append(f"{case}: run {run} ran {late:.2f} s outside its lease (allowance {FREEZE_ALLOWANCE} s)")
        return found
