"""An outage that is longer than a lease costs time and no job (docs/fencing.md 3.7): the jobs prove it themselves."""

import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
RUNS = 20
OUTAGE_SECONDS = 15.0
# A lease of ten seconds is over, and every job frozen.
FROZEN_SECONDS = 12.0
TICKS = 250
# One line a tick, under a lock that only one execution of a run can hold.
SCRIPT = f"""
exec 9>"$RECORD/lock-$TOBAN_RUN_ID"
flock -n 9 || {{ echo "overlap $TOBAN_RUN_ID $$" >> "$RECORD/ticks"; exit 99; }}
i=0
while [ $i -lt {TICKS} ]; do echo "tick $TOBAN_RUN_ID $$" >> "$RECORD/ticks"; i=$((i + 1)); sleep 0.1; done
"""


def job(record: Path) -> dict[str, Any]:
    """A job of the default `on_lease_loss`."""
    step = {"id": "main", "type": "command", "argv": ["sh", "-c", SCRIPT]}
    spec = {"steps": [step], "env": {"RECORD": str(record)}, "allow_shell": True, "max_lost": 0}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "ticks"}, "spec": spec}


def ticks(record: Path) -> Counter[tuple[str, ...]]:
    """How many lines there are of each (kind, run, process)."""
    file = record / "ticks"
    return Counter(tuple(line.split()) for line in file.read_text().splitlines()) if file.exists() else Counter()


def take_away(stack: Stack, what: str) -> list[str]:
    """Kill PostgreSQL or all coordinators; the names of what is to be started again."""
    if what == "postgres":
        stack.kill("postgres", signal.SIGQUIT)
        return ["postgres"]
    names = [name for name in stack.processes() if name.startswith("coordinator")]
    for name in names:
        stack.kill(name, signal.SIGKILL)
    return names


def kinds(admin: AdminClient, run: int) -> list[str]:
    """The freezes among the events of a run."""
    return [event.type for event in admin.run(run).events if event.type in ("frozen", "thawed")]


@pytest.mark.parametrize("what", ["postgres", "coordinators"])
def test_an_outage_longer_than_a_lease_costs_no_job(tmp_path: Path, what: str) -> None:
    pause, clock, record = threading.Event(), SystemClock(), tmp_path / "record"
    record.mkdir()
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        admin.apply(job(record))
        runs = admin.start("ticks", count=RUNS)
        admin.until(lambda: len(ticks(record)) == RUNS or None, seconds=30, of="all jobs run")
        gone = take_away(stack, what)
        away = clock.monotonic()
        pause.wait(FROZEN_SECONDS)
        frozen = ticks(record)
        pause.wait(away + OUTAGE_SECONDS - clock.monotonic())
        assert ticks(record) == frozen, "no job runs without a lease"
        assert frozen.total() < RUNS * TICKS, "none had ended before"
        for name in gone:
            stack.start(name)
        ended = [admin.until_ended(run, seconds=120) for run in runs]
        assert {(run.state, run.attempt, run.lost_count) for run in ended} == {("SUCCEEDED", 1, 0)}
        found = ticks(record)
        assert sorted(found) == sorted(frozen), "no job was started twice"
        assert set(found.values()) == {TICKS}
        assert {tuple(kinds(admin, run)) for run in runs} == {("frozen", "thawed")}
