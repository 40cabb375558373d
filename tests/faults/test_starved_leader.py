"""A leader with a third of a core under load keeps its term and sets nothing aside (docs/fencing.md 3.1, 3.3).

TOBAN_STARVED_SECONDS is how long; `make starved-long` takes 10 minutes.
"""

import json
import logging
import os
import threading
from pathlib import Path

import psycopg
import pytest

from toban_domain.epoch import Epoch
from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.cpu_limit import limited_cpu
from toban_testing.run_recorder import interval_schedule
from toban_testing.stack_fixtures import admin_of, leader_name, running_stack, sql

SECONDS = float(os.environ.get("TOBAN_STARVED_SECONDS", "20"))
# The short form loads the machine less, so that PostgreSQL is not what starves; the leader gets less, too.
LONG = SECONDS > 60
SHARE = float(os.environ.get("TOBAN_STARVED_SHARE", "0.3" if LONG else "0.15"))
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240 + 2 * SECONDS)]
LOG = logging.getLogger(__name__)
# Runs that wait at any time, events in a batch, and schedules of a second each.
BACKLOG, EVENTS, SCHEDULES = (1000, 50, 20) if LONG else (100, 10, 10)
ASIDE = (
    "event cannot be written; postponed",
    "run cannot be placed; set aside",
    "run cannot be moved; set aside",
    "schedules cannot fire",
)
JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "true"},
    "spec": {
        "steps": [{"argv": ["/bin/true"]}],
        "concurrency": {"policy": "allow"},
        "payload_schema": {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False},
    },
}
TRIGGER = {
    "apiVersion": "toban/v1",
    "kind": "EventTrigger",
    "metadata": {"name": "starved"},
    "spec": {"event_type": "load", "job": "true", "payload": {"id": "{{ event.payload.id }}"}},
}
WAITING = "SELECT count(*) AS n FROM scheduler.runs_live WHERE state = 'PENDING'"
EMIT = """SELECT scheduler.emit_event('load', jsonb_build_object('id', n)) FROM generate_series(1, %(events)s) n"""


def counter_of(epoch: int) -> int:
    """It grows by one with each term."""
    return Epoch.unpack(epoch).counter


def ended(stack: Stack) -> int:
    """How many runs have succeeded."""
    [row] = sql(stack, "SELECT count(*) AS n FROM scheduler.job_runs WHERE state = 'SUCCEEDED'")
    return int(row["n"])


def epoch_of(stack: Stack) -> int:
    [row] = sql(stack, "SELECT epoch FROM scheduler.leader")
    return int(row["epoch"])


def logged_since(stack: Stack, sizes: dict[str, int]) -> str:
    """What these processes have logged since their logs had these sizes."""
    found = []
    for name, size in sizes.items():
        with Path(stack.processes()[name].log).open(encoding="utf-8", errors="replace") as file:
            file.seek(size)
            found.append(file.read())
    return "".join(found)


def load(stack: Stack, admin: AdminClient, seconds: float) -> int:
    """Keeps a backlog of runs, schedules that fire and events; returns how many events were emitted."""
    emitted, clock, pause = 0, SystemClock(), threading.Event()
    until = clock.monotonic() + seconds
    while clock.monotonic() < until:
        try:
            if sql(stack, WAITING)[0]["n"] < BACKLOG:
                admin.start("true", count=BACKLOG // 2)
            sql(stack, EMIT, events=EVENTS)
            emitted += EVENTS
        except psycopg.Error as error:
            LOG.warning("load: %s", error)
        pause.wait(0.5)
    return emitted


def test_a_starved_leader_keeps_its_term_and_sets_nothing_aside(tmp_path: Path) -> None:
    with running_stack(tmp_path / "home", executors=1) as stack, admin_of(stack) as admin:
        admin.apply(JOB, TRIGGER, *(interval_schedule(f"tick-{n:02}", "true", seconds=1) for n in range(SCHEDULES)))
        leader = leader_name(stack, admin)
        others = [name for name in stack.processes() if name.startswith("coordinator") and name != leader]
        # Calls of people go to the others, so that the load is the leader's own work.
        admin.prefer(stack.processes()[others[0]].address)
        sizes = {name: Path(stack.processes()[name].log).stat().st_size for name in (leader, *others)}
        before, ran = epoch_of(stack), ended(stack)
        with limited_cpu(stack.processes()[leader].pid, SHARE) as limit:
            emitted = load(stack, admin, SECONDS)
            how, terms, runs = limit(), counter_of(epoch_of(stack)) - counter_of(before), ended(stack) - ran
        text = logged_since(stack, sizes)
        aside = sum(text.count(message) for message in ASIDE)
        figures = {
            "test": "starved_leader",
            "seconds": SECONDS,
            "share": SHARE,
            "limit": how,
            "changes_of_term": terms,
            "set_aside": aside,
            "events": emitted,
            "runs": runs,
        }
        LOG.info("%s", json.dumps(figures))
        assert (terms, aside) == (0, 0), [line for line in text.splitlines() if '"level": "info"' not in line][:20]
        assert runs > 0
        admin.until(lambda: not sql(stack, "SELECT 1 FROM scheduler.events LIMIT 1"), seconds=120, of="no event waits")
