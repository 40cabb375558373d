"""A schedule's whole life by command over a whole stack, and no slot of it without a run or a row."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import sql
from toban_testing.waiting import wait_for

pytestmark = pytest.mark.e2e

JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "tick"},
    "spec": {"steps": [{"argv": ["true"]}], "concurrency": {"policy": "allow"}},
}
ENDED = "SELECT count(*) AS n FROM scheduler.runs_history WHERE schedule_name = 'often' AND state = 'SUCCEEDED'"
Toban = Callable[..., str]


@pytest.fixture
def removed(toban_here: Callable[..., Any]) -> Iterator[None]:
    """Also when the test failed: the schedule would go on each second beside the tests of others."""
    yield
    toban_here("schedule", "delete", "often")


def ended(stack: Stack, admin: AdminClient, more: int) -> None:
    """Waits until so many more runs of the schedule have succeeded."""
    before = sql(stack, ENDED)[0]["n"]
    admin.until(lambda: sql(stack, ENDED)[0]["n"] >= before + more, of=f"{more} more runs")


@pytest.mark.seed(146, 170)
def test_a_schedule_from_add_to_remove(stack: Stack, admin: AdminClient, toban: Toban, removed: None) -> None:
    admin.apply(JOB)
    made = ("schedule", "add", "often", "--job", "tick", "--every", "1s")
    said = toban(*made)
    assert said.startswith("schedule often created\n  20")
    [schedule] = sql(stack, "SELECT id FROM scheduler.schedules WHERE name = 'often'")
    said = toban(*made, code=73)
    assert "there is a schedule 'often' already (version 1)" in said
    ended(stack, admin, 3)
    said = toban("schedule", "set", "often", "--cron", "*/2 * * * * *", "--timezone", "Europe/Berlin")
    assert "schedule often updated" in said and any(f"{zone} = " in said for zone in ("+01:00", "+02:00"))
    ended(stack, admin, 2)
    pause_and_resume(stack, toban)
    ended(stack, admin, 1)
    pause_until(stack, toban)
    ended(stack, admin, 1)
    toban("schedule", "delete", "often", "--reason", "enough")
    said = toban("schedule", "get", "often", code=66)
    assert "there is no schedule 'often'" in said
    every_slot_is_told(stack, schedule["id"])


def pause_and_resume(stack: Stack, toban: Toban) -> None:
    toban("schedule", "pause", "often", "--reason", "a test")
    said = toban("schedule", "list")
    assert "paused" in said and "a test" in said
    said = toban("schedule", "pause", "often", code=74)
    assert "is paused already by certificate admin-cli (a test)" in said
    said = toban("schedule", "next", "tick", "-n", "2")
    assert "paused by certificate admin-cli: a test" in said and said.count("+0") == 2
    sql(stack, "SELECT pg_sleep(3)")
    said = toban("schedule", "resume", "often")
    assert "is active again, next at" in said
    found = json.loads(toban("schedule", "get", "often", "-o", "json"))
    [paused] = [fire for fire in found["fires"] if fire["outcome"] == "paused"]
    assert paused["slots"] >= 1 and "a test" in paused["message"] and len(found["next_slots"]) == 3


def pause_until(stack: Stack, toban: Toban) -> None:
    """The leader, whose loop slept, is woken by the pause, and resumes the schedule by itself."""
    assert "schedule often paused until " in toban("schedule", "pause", "often", "--until", "+2s")
    by_leader = "SELECT reason FROM scheduler.admin_action_log WHERE action = 'schedule.resume' AND actor = 'leader'"
    [resumed] = wait_for(lambda: sql(stack, by_leader))
    assert resumed["reason"].startswith("paused until ")
    assert '"status": "active"' in toban("schedule", "get", "often", "-o", "json")


def every_slot_is_told(stack: Stack, schedule: int) -> None:
    rows = sql(
        stack,
        "SELECT first_slot, last_slot, slots, outcome FROM scheduler.fire_ledger"
        " WHERE schedule_id = %(schedule)s AND outcome <> 'withdrawn' ORDER BY 1",
        schedule=schedule,
    )
    [log] = sql(
        stack,
        "SELECT split_part(before ->> 'slots', ' ', 2) AS until FROM scheduler.admin_action_log"
        " WHERE action = 'schedule.update' AND target = 'schedule often'",
    )
    # Every second until the update, every second second after it: no gap, nothing twice.
    for row, following in pairwise(rows):
        if row["outcome"] == "fired":
            step = 1 if following["first_slot"].isoformat() <= log["until"] else 2
            assert 1 <= (following["first_slot"] - row["last_slot"]).total_seconds() <= step, (row, following)
    runs = sql(
        stack,
        "SELECT slot, count(*) AS n FROM scheduler.job_runs WHERE schedule_name = 'often' AND reason <> 'withdrawn' GROUP BY slot",
    )
    assert {row["n"] for row in runs} == {1}
    actions = sql(stack, "SELECT action FROM scheduler.admin_action_log WHERE target = 'schedule often' ORDER BY id")
    assert [row["action"].partition(".")[2] for row in actions] == [
        *("create", "update", "pause", "resume", "pause", "resume", "delete"),
    ]
