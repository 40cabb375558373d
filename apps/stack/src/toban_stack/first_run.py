"""Decides when `make up` has succeeded: a run has succeeded, executors work off a backlog of missed slots, or no run can be due."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from toban_domain.run import LIVE, RunState
from toban_runtime.clock import SystemClock
from toban_stack.console import print_lines
from toban_stack.errors import StackError
from toban_stack.toban_command import MOST_ROWS, Run, Schedule, TobanCommand, typed
from toban_stack.wait import wait_until

FIRST_RUN_SECONDS = 60.0
# The run of a later slot might not end within FIRST_RUN_SECONDS.
DUE_WITHIN_SECONDS = 50.0
CATCH_UP_SECONDS = 10.0
POLL_SECONDS = 0.2
PROGRESS_SECONDS = 5.0
LISTED_RUNS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Unfinished runs of slots that passed before this start; `at_least` when there may be more of them."""

    runs: int
    at_least: bool

    def __str__(self) -> str:
        return f"unfinished runs of slots before this start: {'at least ' if self.at_least else ''}{self.runs}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingDue:
    """No schedule has a slot while `make up` would wait for one."""

    schedules: int
    paused: int
    failed: int
    disabled: int
    next_slot: datetime | None

    def __str__(self) -> str:
        if not self.schedules:
            return "there is no schedule"
        counts = {"paused": self.paused, "failed": self.failed, "disabled": self.disabled}
        why = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        next_slot = f"the next slot is at {self.next_slot:%Y-%m-%d %H:%M:%S} UTC" if self.next_slot else "no slot comes"
        return f"no scheduled run is due within {DUE_WITHIN_SECONDS:g} s, {next_slot} (schedules: {self.schedules}{why and ', of these ' + why})"


def nothing_due(
    schedules: Sequence[Schedule],
    disabled_jobs: Collection[str],
    runs: Sequence[Run],
    *,
    since: datetime,
    until: datetime,
) -> NothingDue | None:
    """None when a scheduled run may still succeed by `until`, or one has ended after `since` otherwise than with success.

    `runs` are the newest ones, also those that are not due yet. A list that may be cut short decides nothing.
    """
    if len(schedules) >= MOST_ROWS or any(_matters(run, since, until) for run in runs):
        return None
    off = [one for one in schedules if not one["enabled"] or one["job"] in disabled_jobs]
    on = [one for one in schedules if one not in off]
    slots = [_time(one, "next_run_at") for one in on if one["status"] == "active" and one.get("next_run_at")]
    next_slot = min(slots, default=None)
    if next_slot is not None and next_slot <= until:
        return None
    states = [one["status"] for one in on]
    return NothingDue(
        schedules=len(schedules),
        paused=states.count("paused"),
        failed=states.count("failed"),
        disabled=len(off),
        next_slot=next_slot,
    )


def _matters(run: Run, since: datetime, until: datetime) -> bool:
    if run["state"] in LIVE:
        return _time(run, "scheduled_for") <= until
    return bool(run.get("finished_at")) and _time(run, "finished_at") >= since


class FirstRun:
    """Waits for a run that succeeds after `start`, a scheduled one or that of `make up` itself, unless a backlog delays it or none can be due."""

    def __init__(self, *, command: TobanCommand, start: datetime, clock: SystemClock) -> None:
        self._command = command
        self._start = start
        self._clock = clock
        self._result: Run | Backlog | NothingDue | None = None

    def wait(self, *, succeeded_since: datetime | None) -> Run | Backlog | NothingDue:
        """The newest run that succeeded since then (None = ever), the backlog after CATCH_UP_SECONDS, or why none can be due.

        Prints progress. Raises StackError when there is none of these after FIRST_RUN_SECONDS.
        """
        print_lines("• waiting for the first run")
        began = self._clock.monotonic()
        until = self._clock.wall() + timedelta(seconds=DUE_WITHIN_SECONDS)
        next_progress = began + PROGRESS_SECONDS

        def done() -> bool:
            nonlocal next_progress
            now = self._clock.monotonic()
            self._result = self._succeeded(succeeded_since)
            if self._result is None and now - began >= CATCH_UP_SECONDS:
                self._result = self._backlog()
            if self._result is None and now >= next_progress:
                next_progress = now + PROGRESS_SECONDS
                self._result = self._nothing_due(until)
                if self._result is None:
                    print_lines(f"• waiting for the first run, {now - began:.0f} s ({self._newest()})")
            return self._result is not None

        wait_until(done, FIRST_RUN_SECONDS, POLL_SECONDS)
        if self._result is None:
            raise StackError(
                f"no run succeeded within {FIRST_RUN_SECONDS:g} s ({self._newest()}); "
                f"see {typed('scripts/toban doctor')}"
            )
        return self._result

    def _succeeded(self, since: datetime | None) -> Run | None:
        runs = self._command.runs(RunState.SUCCEEDED)
        return next((run for run in runs if since is None or _time(run, "finished_at") >= since), None)

    def _backlog(self) -> Backlog | None:
        """None too when no run is RUNNING: while all executors are drained, for example, a backlog does not shrink."""
        unfinished = self._command.runs(*sorted(LIVE), limit=LISTED_RUNS)
        missed = [run for run in unfinished if _time(run, "scheduled_for") < self._start]
        if not missed or not self._command.runs(RunState.RUNNING):
            return None
        return Backlog(runs=len(missed), at_least=len(unfinished) == LISTED_RUNS)

    def _nothing_due(self, until: datetime) -> NothingDue | None:
        # Schedules first: a slot that fires meanwhile is due in this list, or has its run in the next one.
        schedules, disabled = self._command.schedules(), self._command.disabled_jobs()
        runs = [*self._command.runs(ahead=True), *self._command.runs(*sorted(LIVE), ahead=True)]
        return nothing_due(schedules, disabled, runs, since=self._start, until=until)

    def _newest(self) -> str:
        runs = self._command.runs()[:3]
        return "; ".join(f"run {run['id']} of {run['job']} is {run['state']}" for run in runs) or "none was created"


def _time(run: Run, key: str) -> datetime:
    return datetime.fromisoformat(run[key])
