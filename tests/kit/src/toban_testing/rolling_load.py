"""A load whose slots and log lines can be verified completely, and orderly restarts of services under it."""

import itertools
import os
import signal
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.run_recorder import by_run, interval_schedule, recorder_job
from toban_testing.stack_fixtures import sql

SCHEDULES = 20
LINES = 5
_PRINT_LINES = f'i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo "run $TOBAN_RUN_ID line $i"; done; '


def talking_job(name: str, record: Path, *, seconds: float, **spec: Any) -> dict[str, Any]:
    """A recorder job with deterministic output: see `lines_of`."""
    job = recorder_job(name, record, seconds=seconds, **spec)
    argv = job["spec"]["steps"][0]["argv"]
    argv[-1] = _PRINT_LINES + argv[-1]
    return job


def lines_of(run_id: int) -> list[str]:
    """The output of one attempt of a talking job."""
    return [f"run {run_id} line {number}" for number in range(1, LINES + 1)]


def begin_ticks(admin: AdminClient, record: Path) -> None:
    """Creates 20 schedules with an interval of one second; returns when their runs start."""
    record.mkdir()
    tick = talking_job("tick", record, seconds=0.1, concurrency={"policy": "allow"})
    admin.apply(tick, *(interval_schedule(f"tick-{n:02}", "tick", seconds=1) for n in range(SCHEDULES)))
    wait_for_ticks(admin, record, 2 * SCHEDULES, seconds=30)


def wait_for_ticks(admin: AdminClient, record: Path, count: int, *, seconds: float) -> None:
    """Waits until `count` more runs have started."""
    goal = len(by_run(record)) + count
    admin.until(lambda: len(by_run(record)) >= goal, seconds=seconds, of=f"{count} more runs")


def end_ticks(stack: Stack, admin: AdminClient) -> list[dict[str, Any]]:
    """Disables the schedules and waits for due runs to end; returns the rows of the runs with past slots."""
    sql(stack, "UPDATE scheduler.schedules SET enabled = false")
    end = sql(stack, "SELECT now() - interval '1 second' AS t")[0]["t"]
    admin.until(
        lambda: not sql(stack, "SELECT 1 FROM scheduler.runs_live WHERE job_name = 'tick' AND slot <= now()"),
        seconds=60,
        of="every due run ended",
    )
    return sql(stack, "SELECT * FROM scheduler.job_runs WHERE job_name = 'tick' AND slot <= %(end)s", end=end)


def check_slots(runs: list[dict[str, Any]]) -> None:
    """Asserts that each slot of each schedule has exactly one run."""
    by_schedule: dict[int, list[Any]] = {}
    for run in runs:
        by_schedule.setdefault(run["schedule_id"], []).append(run["slot"])
    assert len(by_schedule) == SCHEDULES
    for schedule, slots in by_schedule.items():
        gaps = {later - earlier for earlier, later in itertools.pairwise(sorted(slots))}
        assert gaps == {timedelta(seconds=1)}, f"schedule {schedule} has a missing or duplicate slot: {gaps}"


def check_once(runs: list[dict[str, Any]], record: Path) -> None:
    """Asserts that each run succeeded in its first attempt, was never lost, and its process started and ended once."""
    record_of = by_run(record)
    for run in runs:
        found = (run["state"], run["attempt"], run["lost_count"])
        assert found == ("SUCCEEDED", 1, 0), f"run {run['id']}: {found} {run['error_summary']}"
        whats = [mark.what for mark in record_of[run["id"]]]
        assert whats == ["start", "end"], f"run {run['id']}: {whats}"


def check_logs(admin: AdminClient, ids: list[int]) -> None:
    """Asserts that every line of every run is stored once and in order."""
    for run_id in ids:
        admin.until(
            lambda run_id=run_id: admin.log(run_id) == lines_of(run_id),  # type: ignore[misc]
            seconds=15,
            of=f"the lines of run {run_id}",
        )


def restart(stack: Stack, name: str, *, seconds: float = 30.0) -> int:
    """Stops with SIGTERM and starts again; returns the exit code. The process must be a child of this one."""
    code = stop_in_order(stack, name, seconds=seconds)
    stack.start(name)
    return code


def stop_in_order(stack: Stack, name: str, *, seconds: float = 30.0) -> int:
    """Stops with SIGTERM; returns the exit code (negative: the signal that ended it). Raises TimeoutError."""
    pid = stack.processes()[name].pid
    stack.kill(name, signal.SIGTERM)
    clock, pause = SystemClock(), threading.Event()
    ends_at = clock.monotonic() + seconds
    while clock.monotonic() < ends_at:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        pause.wait(0.02)
    raise TimeoutError(f"{name} did not end within {seconds:g} s after SIGTERM")


def members(stack: Stack) -> Mapping[str, str]:
    """Status of each coordinator incarnation so far: ok or stopped."""
    rows = sql(stack, "SELECT incarnation::text AS incarnation, status FROM scheduler.coordinators")
    return {row["incarnation"]: row["status"] for row in rows}
