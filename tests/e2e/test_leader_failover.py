"""A minute of 20 interval jobs a second with the leader killed, or stopped and woken: no slot lost or doubled, no job dies (I1, I2, I8, I15)."""

import itertools
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.run_recorder import by_run, interval_schedule, recorder_job
from toban_testing.stack_fixtures import admin_of, leader_name, running_stack, sql

pytestmark = pytest.mark.e2e
SCHEDULES = 20


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "home") as stack:
        yield stack


def begin_load(admin: AdminClient, record: Path) -> int:
    """20 schedules of one second each, one long run; returns the id of the long run once it is RUNNING."""
    record.mkdir()
    tick = recorder_job("tick", record, seconds=0.1, concurrency={"policy": "allow"})
    long = recorder_job("long", record, seconds=100)
    admin.apply(tick, long, *(interval_schedule(f"tick-{n:02}", "tick", seconds=1) for n in range(SCHEDULES)))
    [long_id] = admin.start("long")
    admin.until(lambda: admin.run(long_id).state == "RUNNING", seconds=15, of="the long run runs")
    admin.until(lambda: len(by_run(record)) > 3 * SCHEDULES, seconds=20, of="scheduled runs come")
    return long_id


def wait_for_ticks(admin: AdminClient, record: Path, count: int, *, seconds: float) -> None:
    goal = len(by_run(record)) + count
    admin.until(lambda: len(by_run(record)) >= goal, seconds=seconds, of=f"{count} more runs")


def check_slots(stack: Stack, admin: AdminClient, record: Path) -> None:
    """Stop the clockwork, let what is under way end, then hold every slot of every schedule against the runs and the jobs' own record."""
    sql(stack, "UPDATE scheduler.schedules SET enabled = false")
    end = sql(stack, "SELECT now() - interval '1 second' AS t")[0]["t"]
    admin.until(
        lambda: not sql(stack, "SELECT 1 FROM scheduler.runs_live WHERE job_name = 'tick' AND slot <= now()"),
        seconds=40,
        of="every due run ended",
    )
    runs = sql(stack, "SELECT * FROM scheduler.job_runs WHERE job_name = 'tick' AND slot <= %(end)s", end=end)
    record_of = by_run(record)
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


@pytest.mark.seed(218)
def test_kill_of_the_leader_loses_and_doubles_nothing(
    stack: Stack, admin: AdminClient, tmp_path: Path, at_most: Any
) -> None:
    record = tmp_path / "record"
    long_id = begin_load(admin, record)
    before, token = admin.cluster(), admin.run(long_id).token
    wait_for_ticks(admin, record, 15 * SCHEDULES, seconds=30)
    stack.kill(leader_name(stack, admin), signal.SIGKILL)
    after = admin.until(
        lambda: c if (c := admin.cluster()).epoch > before.epoch else None,
        seconds=at_most(3),
        of="the other coordinator leads",
    )
    assert after.leader_worker_id != before.leader_worker_id
    wait_for_ticks(admin, record, 30 * SCHEDULES, seconds=60)
    long = admin.run(long_id)
    assert (long.state, long.token, long.attempt, long.lost_count) == ("RUNNING", token, 1, 0)
    check_slots(stack, admin, record)
    epochs = sql(stack, "SELECT DISTINCT leader_epoch AS e FROM scheduler.job_attempts ORDER BY e")
    assert [row["e"] for row in epochs] == [before.epoch, after.epoch]


@pytest.mark.long
@pytest.mark.seed(16)
def test_a_stopped_leader_that_wakes_writes_nothing(
    stack: Stack, admin: AdminClient, tmp_path: Path, at_most: Any
) -> None:
    record = tmp_path / "record"
    begin_load(admin, record)
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
            wait_for_ticks(survivor, record, 3 * SCHEDULES, seconds=20)
    finally:
        stack.kill(old, signal.SIGCONT)
    wait_for_ticks(admin, record, 10 * SCHEDULES, seconds=30)
    assert admin.cluster().epoch == after.epoch
    late = sql(
        stack,
        "SELECT a.run_id FROM scheduler.job_attempts a, scheduler.leader l WHERE a.leader_epoch < l.epoch AND a.dispatched_at > l.taken_at",
    )
    assert late == []
    check_slots(stack, admin, record)
