"""Honest runs beside hostile ones on executors of class `isolated`: each executes exactly once, and never two executions of one run at a time."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.process_tree import descendants, start_time
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.hostile_jobs import forged_calls, isolating_stack, start_hostile
from toban_testing.stack_fixtures import admin_of

WAVES, HONEST, HOSTILE = 2, 10, 5
HONEST_SECONDS, SIEGE_SECONDS = 60, 125

WORK = """
import fcntl, json, os, sys, time
number = json.load(open(os.environ["TOBAN_PAYLOAD_FILE"]))["number"]
journal = os.open(sys.argv[1] + "/journal", os.O_WRONLY | os.O_APPEND)
def note(what):
    os.write(journal, (json.dumps([number, what, os.environ["TOBAN_FENCE"]]) + "\\n").encode())
lock = os.open(f"{sys.argv[1]}/{number}.lock", os.O_RDWR)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("two at a time")
note("begin")
time.sleep(float(sys.argv[2]))
note("end")
"""


@pytest.fixture
def besieged() -> Iterator[Stack]:
    with isolating_stack(coordinators=1, executors=2, slots=8) as made:
        yield made


def start_honest(admin: AdminClient, public: Path, numbers: range) -> list[int]:
    """Runs that would execute again after a failure; each has a lock file, which others may open and not replace."""
    for number in numbers:
        (public / f"{number}.lock").touch()
        (public / f"{number}.lock").chmod(0o666)
    argv = [sys.executable, "-I", "-c", WORK, str(public), str(HONEST_SECONDS)]
    spec = {"steps": [{"argv": argv}], "allow_shell": True, "retry": {"max_attempts": 3}}
    admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "honest"}, "spec": spec})
    return [admin.start("honest", payload={"number": number})[0] for number in numbers]


def journal(public: Path) -> list[list[Any]]:
    """[number, what, token] of all that honest runs did, in order."""
    return [json.loads(line) for line in (public / "journal").read_text().splitlines()]


def begun(public: Path, numbers: range) -> bool:
    return {number for number, what, _ in journal(public) if what == "begin"} >= set(numbers)


@pytest.mark.long
def test_each_honest_run_executes_once_beside_hostile_ones(attacks: Any, besieged: Stack, tmp_path: Path) -> None:
    public = besieged.home.root.parent / "public"
    (public / "journal").touch()
    (public / "journal").chmod(0o666)
    executors = {one.pid: start_time(one.pid) for one in besieged.processes().values() if one.role == "executor"}
    first, second = (range(wave * HONEST, (wave + 1) * HONEST) for wave in range(WAVES))
    with admin_of(besieged) as admin:
        honest = start_honest(admin, public, first)
        admin.until(lambda: begun(public, first), of="the first honest runs execute")
        knowledge = forged_calls(besieged, admin, [admin.run(one) for one in honest], tmp_path / "own")
        knowledge["pids"] = sorted({pid for one in executors for pid in (one, *descendants(one))})
        hostile = [start_hostile(admin, "siege", knowledge, timeout_seconds=SIEGE_SECONDS) for _ in range(HOSTILE)]
        admin.until(lambda: all(admin.log(one)[1:] for one in hostile), of="each hostile run has made a round")
        for one in honest:
            admin.until_ended(one, seconds=2 * HONEST_SECONDS)
        # The second ones start, execute and end under attack.
        honest += start_honest(admin, public, second)
        runs = [admin.until_ended(one, seconds=2 * HONEST_SECONDS) for one in honest]
        for one in hostile:
            admin.until_ended(one, seconds=SIEGE_SECONDS)
            judge(attacks, admin.log(one))
    for number, one in enumerate(runs):
        done = [what for found, what, _ in journal(public) if found == number]
        fine = done == ["begin", "end"] and one.state == "SUCCEEDED" and len(one.attempts) == 1
        attacks.expect(f"run {number} once", refused=fine, instead=(done, one.state, len(one.attempts)))
    assert {pid: start_time(pid) for pid in executors} == executors, "no executor was started again"


def judge(attacks: Any, lines: list[str]) -> None:
    """The rounds of a hostile run, and what was not refused in them."""
    _, *said = map(json.loads, lines)
    rounds = [one for one in said if isinstance(one, int)]
    attacks.expect("rounds of a hostile run", refused=len(rounds) > 1 and rounds[-1] > 0, instead=lines[-3:])
    for one in said:
        if isinstance(one, dict):
            attacks.expect(one["what"], refused=one["refused"], instead=one["how"])
