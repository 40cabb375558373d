"""PostgreSQL is away for longer than a lease: nobody leads, no job runs without a lease, and afterwards nothing is missing (I3, I8, I13)."""

import signal
import threading
from pathlib import Path

import pytest

from toban_runtime.clock import SystemClock
from toban_stack.wait import wait_until
from toban_testing.admin_client import AdminClient
from toban_testing.rolling_load import SCHEDULES, begin_ticks, check_logs, check_slots, end_ticks, wait_for_ticks
from toban_testing.run_recorder import by_run, marks, recorder_job
from toban_testing.stack_fixtures import admin_of, running_stack, sql

pytestmark = pytest.mark.e2e
OUTAGE_SECONDS = 16.0
# Leaders stop within two seconds, and a lease of ten ends its jobs.
LEASE_IS_OVER_SECONDS = 12.0


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def begin_long(admin: AdminClient, record: Path) -> tuple[int, int]:
    """A run that outlasts the outage and is killed with its lease: its id, and the process of its job."""
    admin.apply(recorder_job("long", record, seconds=120, on_lease_loss="kill"))
    [run_id] = admin.start("long")
    admin.until(lambda: by_run(record)[run_id], seconds=15, of="the long run has begun")
    return run_id, by_run(record)[run_id][0].pid


def test_postgresql_is_away_for_longer_than_a_lease(tmp_path: Path) -> None:
    record, pause = tmp_path / "record", threading.Event()
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        begin_ticks(admin, record)
        long_id, pid = begin_long(admin, record)
        epoch = admin.cluster().epoch
        wait_for_ticks(admin, record, 3 * SCHEDULES, seconds=30)
        stack.kill("postgres", signal.SIGQUIT)
        clock = SystemClock()
        away = clock.monotonic()
        # The last second is for a slow machine.
        over = wait_until(lambda: not alive(pid), OUTAGE_SECONDS - 1)
        assert over, "no job outlives the lease that nobody renews"
        pause.wait(away + LEASE_IS_OVER_SECONDS - clock.monotonic())
        begun = len(by_run(record))
        pause.wait(away + OUTAGE_SECONDS - clock.monotonic())
        assert len(by_run(record)) == begun, "nothing starts without a lease"
        stack.start("postgres")
        after = admin.until(
            lambda: c.epoch if (c := admin.cluster()).epoch > epoch and c.leader_address else None,
            seconds=15,
            of="somebody leads",
        )
        wait_for_ticks(admin, record, 5 * SCHEDULES, seconds=30)

        runs = end_ticks(stack, admin)
        check_slots(runs)
        assert {run["state"] for run in runs} == {"SUCCEEDED"}
        assert not [mark for mark in marks(record) if mark.what == "overlap"]
        ends = {run["id"]: [mark.what for mark in by_run(record)[run["id"]]].count("end") for run in runs}
        wrong = [run["id"] for run in runs if not 1 <= ends[run["id"]] <= 1 + run["lost_count"]]
        assert wrong == [], "only a run whose executor lost its lease before its end was told may be done again"
        check_logs(admin, [run["id"] for run in runs if run["lost_count"] == 0])

        long = admin.run(long_id)
        assert (long.state, long.lost_count, long.attempt) == ("RUNNING", 1, 1)
        assert admin.cluster().epoch == after, "one leader, and it stays"
        late = "SELECT 1 FROM scheduler.job_attempts WHERE leader_epoch = %(old)s AND dispatched_at > (SELECT taken_at FROM scheduler.leader)"
        assert sql(stack, late, old=epoch) == []
