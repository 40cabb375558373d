"""What `make up` shows: progress, the first scheduled run, the addresses, and how to stop."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from toban_runtime.clock import SystemClock
from toban_stack.errors import StackError
from toban_stack.report import columns, say
from toban_stack.stack import Stack
from toban_stack.wait import wait_until

FIRST_RUN_SECONDS = 60.0
COMMAND_SECONDS = 30.0
POLL_SECONDS = 0.2
SUCCEEDED = "SUCCEEDED"
PROGRESS_SECONDS = 5.0


def run(stack: Stack, *, root: Path) -> None:
    """Starts the stack, applies `examples/`, waits for a scheduled run and shows it.

    Raises StackError when something fails; what this call started is ended then.
    """
    clock = SystemClock()
    began = clock.monotonic()
    before = set(stack.processes())
    stack.up()
    try:
        command = Command(home=stack.home.root, root=root)
        known = _seen(command) if set(stack.processes()) - before else set()
        examples = root / "examples"
        if examples.is_dir():
            say(f"• examples: {command.lines('apply', '-f', str(examples), '-o', 'name')} definitions applied")
        first = first_run(command, known, clock)
    except BaseException:
        if not before:
            stack.down()
        raise
    say("", *columns([HEADER, row(first)]), "")
    _addresses(stack)
    say(f"\nToban is up after {clock.monotonic() - began:.0f} s. Stop it with: {typed('make down')}")


class Command:
    """The `toban` command as the newcomer would type it."""

    def __init__(self, *, home: Path, root: Path) -> None:
        self._environment = {**os.environ, "TOBAN_HOME": str(home)}
        self._root = root

    def runs(self) -> list[Mapping[str, Any]]:
        """The newest runs, newest first."""
        answer = json.loads(self.output("run", "list", "--limit", "100", "-o", "json"))
        rows = answer["runs"] if isinstance(answer, dict) else answer
        return list(rows)

    def lines(self, *arguments: str) -> int:
        """How many lines a command printed."""
        return len(self.output(*arguments).strip().splitlines())

    def output(self, *arguments: str) -> str:
        """What a command printed; StackError with its words when it fails."""
        argv = [sys.executable, "-m", "toban_cli", *arguments]
        try:
            done = subprocess.run(
                argv,
                env=self._environment,
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise StackError(f"toban {' '.join(arguments)} gave no answer within {COMMAND_SECONDS:g} s") from error
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip()
            raise StackError(f"toban {' '.join(arguments)} failed (exit {done.returncode}):\n{words}")
        return done.stdout


def _seen(command: Command) -> set[int]:
    """The runs that have succeeded. Runs are made ahead of time, so one that is known may still be to come."""
    return {int(row["id"]) for row in command.runs() if row["state"] == SUCCEEDED}


def first_run(command: Command, known: set[int], clock: SystemClock) -> Mapping[str, Any]:
    """The newest scheduled run that has succeeded and is not among `known`; says every few seconds what it waits for."""
    found: list[Mapping[str, Any]] = []
    states: list[str] = []
    began = clock.monotonic()
    told = [began]

    def look() -> bool:
        fresh = [row for row in command.runs() if int(row["id"]) not in known and row.get("schedule")]
        states[:] = [f"run {row['id']} of {row['job']} is {row['state']}" for row in fresh[:3]]
        found[:] = [row for row in fresh if row["state"] == SUCCEEDED]
        if not found and clock.monotonic() - told[0] > PROGRESS_SECONDS:
            told[0] = clock.monotonic()
            say(f"• waiting for the first scheduled run, {told[0] - began:.0f} s ({'; '.join(states) or 'none yet'})")
        return bool(found)

    say("• waiting for the first scheduled run")
    if not wait_until(look, FIRST_RUN_SECONDS, POLL_SECONDS):
        seen = "; ".join(states) or "none was created"
        raise StackError(
            f"no scheduled run succeeded within {FIRST_RUN_SECONDS:g} s ({seen}); see {typed('scripts/toban doctor')}"
        )
    return found[0]


HEADER = ("RUN", "JOB", "SLOT", "EXECUTOR", "SECONDS", "LAST LINE OF OUTPUT")


def row(run: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a run under HEADER."""
    slot = str(run.get("slot") or run.get("scheduled_for") or "-")
    names = ("id", "job", "slot", "executor", "seconds", "last_line")
    cells = {**run, "slot": slot, "seconds": _seconds(run)}
    return tuple(str(cells.get(name) or "-") for name in names)


def _seconds(run: Mapping[str, Any]) -> str:
    try:
        span = datetime.fromisoformat(run["finished_at"]) - datetime.fromisoformat(run["started_at"])
    except (KeyError, TypeError, ValueError):
        return "-"
    return f"{span.total_seconds():.3f}"


def _addresses(stack: Stack) -> None:
    processes = stack.processes()
    rows = [(record.role, name, record.address, record.admin) for name, record in processes.items()]
    table = [("ROLE", "PROCESS", "ADDRESS", "HEALTH AND METRICS")]
    table += [(role, name, address, f"http://{admin}/healthz" if admin else "-") for role, name, address, admin in rows]
    say(*columns(table), "")
    say(*(f"Site  http://{address}" for address in stack.sites))
    say(
        f"logs: {near(stack.home.logs)}",
        f"try:  {typed('scripts/toban run start hello --wait --follow')}",
        f"      {typed('scripts/toban cluster status')}",
        f"      {typed('make status')}",
    )


def near(path: Path) -> Path:
    """As it is called from here, when it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def typed(command: str) -> str:
    """A command as it has to be typed to reach this stack: TOBAN_HOME must come with it when `make up` was given one."""
    given = os.environ.get("TOBAN_HOME", "")
    return f"TOBAN_HOME={shlex.quote(given)} {command}" if given else command
