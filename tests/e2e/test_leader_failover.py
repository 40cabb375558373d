"""20 interval jobs a second with the leader killed, or stopped and woken: no slot lost or doubled, no job dies (I1, I2, I8, I15)."""

import itertools
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.run_recorder import by_run, interval_schedule, recorder_job
from toban_testing.stack_fixtures import admin_of, leader_name, sql

pytestmark = pytest.mark.e2e
SCHEDULES = 20
_numbers = itertools.count(1)


class Load:
    """20 schedules of one second each, and one long run, by names that no other test has."""

    def __init__(self, stack: Stack, record: Path) -> None:
        record.mkdir()
        self.record, self.name, self._stack = record, f"beat-{next(_numbers)}", stack

    def start(self, admin: AdminClient) -> None:
        """Until each schedule has started three runs, and the long run runs."""
        beat = recorder_job(self.name, self.record, seconds=0.1, concurrency={"policy": "allow"})
        long = recorder_job(f"{self.name}-long", self.record, seconds=100)
        names = [f"{self.name}-{number:02}" for number in range(SCHEDULES)]
        admin.apply(beat, long, *(interval_schedule(name, self.name, seconds=1) for name in names))
        [self.long_id] = admin.start(f"{self.name}-long")
        admin.until(lambda: admin.run(self.long_id).state == "RUNNING", of="the long run runs")
        self.wait(admin, 3, seconds=20)

    def wait(self, admin: AdminClient, beats: int, *, seconds: float) -> None:
        """Until each schedule has started so many more runs."""
        goal = len(by_run(self.record)) + beats * SCHEDULES
        admin.until(lambda: len(by_run(self.record)) >= goal, seconds=seconds, of=f"{beats} more runs of each schedule")

    def check(self, admin: AdminClient) -> None:
        """Let the runs of all slots until now end, then hold every slot of every schedule against the runs and the jobs' own record."""
        end = sql(self._stack, "SELECT now() - interval '1 second' AS t")[0]["t"]
        due = "SELECT 1 FROM scheduler.runs_live WHERE job_name = %(name)s AND slot <= %(end)s"
        admin.until(lambda: not sql(self._stack, due, name=self.name, end=end), seconds=40, of="every due run ended")
        of_load = "SELECT * FROM scheduler.job_runs WHERE job_name = %(name)s AND slot <= %(end)s"
        runs = sql(self._stack, of_load, name=self.name, end=end)
        record_of = by_run(self.record)
        assert {run["state"] for run in runs} == {"SUCCEEDED"}
        assert {run["attempt"] for run in runs} == {1}
        for schedule in {run["schedule_id"] for run in runs}:
            slots = sorted(run["slot"] for run in runs if run["schedule_id"] == schedule)
            gaps = {later - earlier for earlier, later in itertools.pairwise(slots)}
            assert gaps == {timedelta(seconds=1)}, f"schedule {schedule} has a hole or a double: {gaps}"
        assert len({run["schedule_id"] for run in runs}) == SCHEDULES
        for run in runs:
            assert [mark.what for mark in record_of[run["id"]]] == ["start", "end"], (
                f"run {run['id']}: {record_of[run['id']]}"
            )

    def end(self, admin: AdminClient, toban: Callable[..., Any]) -> None:
        """Disables the job of the schedules, which is refused when `start` failed before it was there, and waits for the end of all runs."""
        toban("job", "disable", self.name)
        live = "SELECT id FROM scheduler.runs_live WHERE job_name LIKE %(names)s"
        for run in sql(self._stack, live, names=f"{self.name}-long"):
            admin.cancel(run["id"])
        admin.until(lambda: not sql(self._stack, live, names=f"{self.name}%"), of="its runs have ended")


@pytest.fixture
def load(
    stack: Stack, admin: AdminClient, toban_here: Callable[..., Any], tmp_path: Path, whole_afterwards: None
) -> Iterator[Load]:
    made = Load(stack, tmp_path / "record")
    try:
        made.start(admin)
        yield made
    finally:
        made.end(admin, toban_here)


@pytest.mark.seed(218)
@pytest.mark.parametrize("beats", [5, pytest.param(15, marks=pytest.mark.long)])
def test_kill_of_the_leader_loses_and_doubles_nothing(
    stack: Stack, admin: AdminClient, load: Load, beats: int, at_most: Any
) -> None:
    before, token = admin.cluster(), admin.run(load.long_id).token
    load.wait(admin, beats, seconds=30)
    stack.kill(leader_name(stack, admin), signal.SIGKILL)
    after = admin.until(
        lambda: c if (c := admin.cluster()).epoch > before.epoch else None,
        seconds=at_most(3),
        of="the other coordinator leads",
    )
    assert after.leader_worker_id != before.leader_worker_id
    load.wait(admin, 2 * beats, seconds=60)
    long = admin.run(load.long_id)
    assert (long.state, long.token, long.attempt, long.lost_count) == ("RUNNING", token, 1, 0)
    load.check(admin)
    epochs = sql(
        stack,
        "SELECT DISTINCT a.leader_epoch AS e FROM scheduler.job_attempts a JOIN scheduler.job_runs r ON r.id = a.run_id"
        " WHERE r.job_name LIKE %(names)s ORDER BY e",
        names=f"{load.name}%",
    )
    assert [row["e"] for row in epochs][:2] == [before.epoch, after.epoch]


@pytest.mark.long
@pytest.mark.seed(16)
def test_a_stopped_leader_that_wakes_writes_nothing(stack: Stack, admin: AdminClient, load: Load, at_most: Any) -> None:
    before = admin.cluster()
    old = leader_name(stack, admin)
    stack.kill(old, signal.SIGSTOP)
    try:
        others = admin_of(stack, without=old)
        with others as survivor:
            after = survivor.until(
                lambda: c if (c := survivor.cluster()).epoch > before.epoch else None,
                seconds=at_most(6),
                of="the other coordinator leads",
            )
            load.wait(survivor, 3, seconds=20)
    finally:
        stack.kill(old, signal.SIGCONT)
    load.wait(admin, 10, seconds=30)
    assert admin.cluster().epoch == after.epoch
    late = sql(
        stack,
        "SELECT a.run_id FROM scheduler.job_attempts a, scheduler.leader l WHERE a.leader_epoch < l.epoch AND a.dispatched_at > l.taken_at",
    )
    assert late == []
    load.check(admin)
