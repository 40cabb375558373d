"""Runs the `toban` command as a person at the prompt would, and spells commands for that person."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toban_domain.run import RunState
from toban_stack.errors import StackError

COMMAND_SECONDS = 30.0
# Rows of a list at most; the command refuses more.
MOST_ROWS = 10_000
Run = Mapping[str, Any]
Schedule = Mapping[str, Any]
Executor = Mapping[str, Any]


class TobanCommand:
    """The `toban` command with the stack of `home`, in the working folder `root`."""

    def __init__(self, *, home: Path, root: Path) -> None:
        self._environment = {**os.environ, "TOBAN_HOME": str(home)}
        self._root = root
        # Runs that `start` has started.
        self._started: set[str] = set()

    def start(self, job: str) -> None:
        """Starts a run, which `runs` lists beside the scheduled ones. Without effect when the job cannot be started: it is gone, or disabled."""
        done = self._run("run", "start", job, "-o", "name")
        if done.returncode == 0:
            self._started.add(done.stdout.strip())

    def runs(self, *states: RunState, limit: int = 100, ahead: bool = False) -> list[Run]:
        """Scheduled runs and those of `start`, the newest first; only those in one of `states` when there are any. `ahead`: also those that are
        not due yet."""
        filters = [argument for state in states for argument in ("--state", state.value)]
        filters += ["--ahead"] if ahead else []
        rows = json.loads(self.output("run", "list", "--limit", str(limit), *filters, "-o", "json"))
        return [row for row in rows if row.get("schedule") or str(row.get("id")) in self._started]

    def schedules(self) -> list[Schedule]:
        """All schedules, MOST_ROWS at most."""
        return list(json.loads(self.output("schedule", "list", "--limit", str(MOST_ROWS), "-o", "json")))

    def executors(self) -> list[Executor]:
        """Those that are not off."""
        return list(json.loads(self.output("executor", "list", "-o", "json")))

    def disabled_jobs(self) -> set[str]:
        """Names of the jobs that are disabled, among the first MOST_ROWS."""
        rows = json.loads(self.output("job", "list", "--limit", str(MOST_ROWS), "-o", "json"))
        return {row["name"] for row in rows if not row["enabled"]}

    def lines(self, *arguments: str) -> int:
        """The number of lines that a command prints."""
        return len(self.output(*arguments).strip().splitlines())

    def succeeds(self, *arguments: str) -> bool:
        """Whether a command ends with exit code 0. Raises StackError when it does not end."""
        return self._run(*arguments).returncode == 0

    def output(self, *arguments: str) -> str:
        """The standard output of a command. Raises StackError with its error text when it fails."""
        done = self._run(*arguments)
        if done.returncode != 0:
            reason = (done.stderr or done.stdout).strip()
            raise StackError(f"toban {' '.join(arguments)} failed (exit {done.returncode}):\n{reason}")
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "toban_cli", *arguments]
        try:
            return subprocess.run(
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
            raise StackError(f"toban {' '.join(arguments)} did not finish within {COMMAND_SECONDS:g} s") from error


def clone_of(module: str = __file__) -> Path | None:
    """The clone that contains the file of a module of this package; None when the package is installed."""
    found = Path(module).resolve().parents[4]
    return found if (found / "Makefile").exists() else None


def spelled(command: str, module: str = __file__) -> str:
    """A command of the clone (`make down`, `scripts/toban run list`), or where the package is installed what it is there."""
    if clone_of(module) is not None:
        return command
    if command.startswith("make "):
        return f"toban dev {command.removeprefix('make ')}".removesuffix(" up")
    return command.removeprefix("scripts/")


def typed(command: str, module: str = __file__) -> str:
    """`command` as it reaches this stack: with TOBAN_HOME when the caller has it."""
    given = os.environ.get("TOBAN_HOME", "")
    return f"TOBAN_HOME={shlex.quote(given)} {spelled(command, module)}" if given else spelled(command, module)
