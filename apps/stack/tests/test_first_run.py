"""When `make up` has succeeded: with the first run, with a backlog, where no run can be due, and when it has not."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from toban_domain.run import RunState
from toban_runtime.clock import SystemClock
from toban_stack import first_run
from toban_stack.errors import StackError
from toban_stack.first_run import Backlog, FirstRun, NothingDue, nothing_due
from toban_stack.toban_command import MOST_ROWS

START = datetime(2030, 1, 1, tzinfo=UTC)


class ClockAtStart(SystemClock):
    """The wall clock shows START."""

    def wall(self) -> datetime:
        return START


class Listed:
    """Stands in for the command: the runs of a cluster, given with the newest slot first, and its schedules."""

    def __init__(self, *runs: Mapping[str, object], schedules: Sequence[Mapping[str, object]] = ()) -> None:
        self._runs = runs
        self._schedules = schedules

    def schedules(self) -> Sequence[Mapping[str, object]]:
        return self._schedules

    def disabled_jobs(self) -> set[str]:
        return set()

    def runs(self, *states: RunState, limit: int = 100, ahead: bool = False) -> list[Mapping[str, object]]:
        return [run for run in self._runs if not states or run["state"] in states][:limit]


def run(number: int, state: str, *, slot: float, finished: float | None = None) -> Mapping[str, object]:
    """A run whose slot and end lie that many seconds after START."""
    row = {"id": number, "job": "hello", "state": state, "schedule": "hello"}
    row["scheduled_for"] = (START + timedelta(seconds=slot)).isoformat()
    return row if finished is None else {**row, "finished_at": (START + timedelta(seconds=finished)).isoformat()}


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_run, "CATCH_UP_SECONDS", 0.0)
    monkeypatch.setattr(first_run, "FIRST_RUN_SECONDS", 0.1)
    monkeypatch.setattr(first_run, "POLL_SECONDS", 0.02)


def schedule(slot: float | None = None, *, status: str = "active", **given: object) -> Mapping[str, object]:
    """A schedule whose next slot lies that many seconds after START; None: it has none."""
    row = {"name": "s", "job": "hello", "enabled": True, "status": status, **given}
    return row if slot is None else {**row, "next_run_at": (START + timedelta(seconds=slot)).isoformat()}


DUE = schedule(0)
PAUSED = schedule(status="paused")


def wait(
    *runs: Mapping[str, object],
    since: datetime | None = START,
    schedules: Sequence[Mapping[str, object]] = (DUE,),
) -> object:
    waiting = FirstRun(command=Listed(*runs, schedules=schedules), start=START, clock=ClockAtStart())
    return waiting.wait(succeeded_since=since)


def test_the_newest_run_that_succeeded_after_the_start() -> None:
    before = run(1, "SUCCEEDED", slot=-5, finished=-4)
    first = run(3, "SUCCEEDED", slot=5, finished=6)
    assert wait(run(4, "RUNNING", slot=10), first, run(2, "SUCCEEDED", slot=1, finished=2), before) == first
    with pytest.raises(StackError):
        wait(before)


def test_a_stack_that_ran_already_shows_its_last_run() -> None:
    before = run(1, "SUCCEEDED", slot=-5, finished=-4)
    assert wait(before, since=None) == before


def test_a_caught_up_run_counts_behind_any_number_of_waiting_ones() -> None:
    first = run(1, "SUCCEEDED", slot=-900, finished=2)
    assert wait(*(run(n, "PENDING", slot=n - 500) for n in range(500, 1, -1)), first) == first


def test_a_backlog_that_executors_work_off() -> None:
    running = run(1, "RUNNING", slot=-3600)
    assert wait(run(3, "PENDING", slot=5), run(2, "PENDING", slot=-5), running) == Backlog(runs=2, at_least=False)
    many = [run(n, "PENDING", slot=-n) for n in range(2, first_run.LISTED_RUNS + 5)]
    found = wait(*many, running)
    assert str(found) == f"unfinished runs of slots before this start: at least {first_run.LISTED_RUNS}"


@pytest.mark.parametrize(
    ("runs", "seen"),
    [
        ([], "none was created"),
        ([run(1, "FAILED", slot=-5, finished=1)], "run 1 of hello is FAILED"),
        ([run(1, "RUNNING", slot=5)], "run 1 of hello is RUNNING"),
        ([run(1, "PENDING", slot=-5)], "run 1 of hello is PENDING"),
        (
            [*(run(n, "SKIPPED", slot=n) for n in (9, 8, 7)), run(1, "FAILED", slot=0, finished=1)],
            "run 9 of hello is SKIPPED; run 8 of hello is SKIPPED; run 7 of hello is SKIPPED",
        ),
    ],
)
def test_without_both_the_newest_runs_are_in_the_error(runs: list[Mapping[str, object]], seen: str) -> None:
    with pytest.raises(StackError) as caught:
        wait(*runs)
    assert f"no run succeeded within 0.1 s ({seen}); see " in str(caught.value)


def test_progress_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(first_run, "PROGRESS_SECONDS", 0.0)
    with pytest.raises(StackError):
        wait(run(1, "PENDING", slot=1))
    assert "• waiting for the first run, 0 s (run 1 of hello is PENDING)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("schedules", "said"),
    [
        ([], "there is no schedule"),
        ([PAUSED] * 3, "no scheduled run is due within 50 s, no slot comes (schedules: 3, of these 3 paused)"),
        (
            [schedule(5, enabled=False), schedule(5, job="off"), PAUSED, schedule(status="failed"), schedule(51.0)],
            "no scheduled run is due within 50 s, the next slot is at 2030-01-01 00:00:51 UTC"
            " (schedules: 5, of these 1 paused, 1 failed, 2 disabled)",
        ),
        (
            [schedule(3600), schedule()],
            "no scheduled run is due within 50 s, the next slot is at 2030-01-01 01:00:00 UTC (schedules: 2)",
        ),
    ],
)
def test_no_schedule_can_be_due(schedules: Sequence[Mapping[str, object]], said: str) -> None:
    runs = [run(1, "FAILED", slot=-9, finished=-1), run(2, "ASSIGNED", slot=51), run(3, "SKIPPED", slot=-1)]
    until = START + timedelta(seconds=50)
    assert str(nothing_due(schedules, {"off"}, runs, since=START, until=until)) == said


@pytest.mark.parametrize(
    ("schedules", "runs"),
    [
        ([PAUSED, schedule(50)], []),
        ([PAUSED, schedule(-5)], []),
        ([PAUSED], [run(1, "PENDING", slot=-3600)]),
        ([PAUSED], [run(1, "RUNNING", slot=1)]),
        ([schedule(90)], [run(1, "ASSIGNED", slot=30)]),
        ([PAUSED], [run(1, "FAILED", slot=-1, finished=1)]),
        ([PAUSED] * MOST_ROWS, []),
    ],
    ids=["due", "overdue", "pending", "running", "ahead", "failed", "cut"],
)
def test_a_run_may_come_or_has_failed(
    schedules: Sequence[Mapping[str, object]], runs: Sequence[Mapping[str, object]]
) -> None:
    assert nothing_due(schedules, set(), runs, since=START, until=START + timedelta(seconds=50)) is None


def test_up_succeeds_while_every_schedule_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_run, "PROGRESS_SECONDS", 0.0)
    assert wait(schedules=[PAUSED]) == NothingDue(schedules=1, paused=1, failed=0, disabled=0, next_slot=None)
