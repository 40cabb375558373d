"""Decides when `make up` has succeeded: a scheduled run has succeeded, or executors work off a backlog of missed slots."""

from dataclasses import dataclass
from datetime import datetime

from toban_domain.run import LIVE, RunState
from toban_runtime.clock import SystemClock
from toban_stack.console import print_lines
from toban_stack.errors import StackError
from toban_stack.toban_command import Run, TobanCommand, typed
from toban_stack.wait import wait_until

FIRST_RUN_SECONDS = 60.0
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


class FirstRun:
    """Waits for a scheduled run that succeeds after `start`, unless a backlog delays it."""

    def __init__(self, *, command: TobanCommand, start: datetime, clock: SystemClock) -> None:
        self._command = command
        self._start = start
        self._clock = clock
        self._result: Run | Backlog | None = None

    def wait(self, *, succeeded_since: datetime | None) -> Run | Backlog:
        """The newest scheduled run that succeeded since then (None = ever), or the backlog after CATCH_UP_SECONDS.

        Prints progress. Raises StackError when neither is there after FIRST_RUN_SECONDS.
        """
        print_lines("• waiting for the first scheduled run")
        began = self._clock.monotonic()
        next_progress = began + PROGRESS_SECONDS

        def done() -> bool:
            nonlocal next_progress
            now = self._clock.monotonic()
            self._result = self._succeeded(succeeded_since)
            if self._result is None and now - began >= CATCH_UP_SECONDS:
                self._result = self._backlog()
            if self._result is None and now >= next_progress:
                next_progress = now + PROGRESS_SECONDS
                print_lines(f"• waiting for the first scheduled run, {now - began:.0f} s ({self._newest()})")
            return self._result is not None

        wait_until(done, FIRST_RUN_SECONDS, POLL_SECONDS)
        if self._result is None:
            raise StackError(
                f"no scheduled run succeeded within {FIRST_RUN_SECONDS:g} s ({self._newest()}); "
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

    def _newest(self) -> str:
        runs = self._command.runs()[:3]
        return "; ".join(f"run {run['id']} of {run['job']} is {run['state']}" for run in runs) or "none was created"


def _time(run: Run, key: str) -> datetime:
    return datetime.fromisoformat(run[key])
