"""`toban run logs` on a stack as `make up` starts it: while a job writes, and when it has ended."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from toban_stack.stack import Stack
from toban_testing.admin_port import metrics_of
from toban_testing.stack_fixtures import toban_process

pytestmark = pytest.mark.e2e

SCRIPT = r"""
import json, sys, time
print("begins")
print("warned", file=sys.stderr)
time.sleep(1)
print(json.dumps({"level": "error", "msg": "disk full"}))
sys.stdout.flush()
for number in range(3000):
    print("line", number)
sys.stdout.flush()
time.sleep(1.5)
print("\x1b[31mends", end="")
"""


def job(script: Path) -> dict[str, Any]:
    """A job that writes faster than it may."""
    step = {"name": "talk", "type": "command", "argv": [sys.executable, "-u", str(script)]}
    spec = {"steps": [step], "logs": {"max_lines_per_second": 100}}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "talk"}, "spec": spec}


def holes_passed(stack: Stack) -> list[float]:
    """Holes in the numbers that followers gave up on, of each log-archiver."""
    names = [name for name, record in stack.processes().items() if record.role == "log-archiver"]
    found = []
    for name in names:
        found += [
            float(line.split()[1])
            for line in metrics_of(stack, name)
            if line.startswith("toban_log_holes_passed_total ")
        ]
    return found


def test_the_output_of_a_run_while_it_is_written_and_afterwards(
    stack: Stack, toban_here: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    def toban(*words: str, code: int = 0) -> tuple[str, str]:
        done = toban_here(*words)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    (tmp_path / "talk.py").write_text(SCRIPT)
    (tmp_path / "job.yaml").write_text(json.dumps(job(tmp_path / "talk.py")))
    toban("apply", "-f", str(tmp_path / "job.yaml"))
    holes = holes_passed(stack)
    started: dict[str, Any] = json.loads(toban("run", "start", "talk", "-o", "json")[0])
    run = str(started["run_id"])

    followed = toban_process(stack, "run", "logs", run, "--follow")
    assert followed.returncode == 0, followed.stderr
    live, said = followed.stdout, followed.stderr
    assert live.startswith("begins\n")
    assert live.endswith("\x1b[31mends")
    assert "warned\n" in said
    assert "left out: more than 100 lines a second" in said
    # What the limit left out was not waited for.
    assert holes_passed(stack) == holes != []
    # Followed and read afterwards are the same lines.
    whole, _ = toban("run", "logs", run)
    assert whole == live

    assert toban("run", "logs", run, "--stderr", "--verbose") == ("", f"run {run}, from the database\nwarned\n")
    assert toban("run", "logs", run, "--head", "1") == ("begins\n", "")
    assert toban("run", "logs", run, "--tail", "2", "--stdout")[0] == "line 2999\n\x1b[31mends"
    assert toban("run", "logs", run, "--grep", "disk full")[0] == '{"level": "error", "msg": "disk full"}\n'
    assert toban("run", "logs", run, "--grep", "^line (1|2)$", "--regex")[0] == "line 1\nline 2\n"
    (line,) = toban("run", "logs", run, "--level", "warning", "-o", "json")[0].splitlines()
    assert (json.loads(line)["level"], json.loads(line)["attempt"]) == ("error", 1)
    assert toban("run", "logs", run, "--since", "1h", "--until", "59m")[1].endswith("nothing of this kind\n")
    assert "missing )" in toban("run", "logs", run, "--grep", "(", "--regex", code=65)[1]

    # The same over every run of the job, and where it all is.
    (hit,) = toban("job", "logs", "talk", "--since", "1h", "--grep", "disk full", "-o", "json")[0].splitlines()
    assert (str(json.loads(hit)["run"]), json.loads(hit)["level"]) == (run, "error")
    assert toban("job", "logs", "talk", "--until", "1h")[1].startswith("nothing found in 0 runs")
    log = json.loads(toban("run", "get", run, "-o", "json")[0])["log"]
    assert (log["lines"] > 100, log["complete"], log["places"]) == (True, True, ["db"])
