"""The command line over REST before a whole stack: the site is killed and restarted under it, and odd names go both ways."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from toban_stack.processes import descendants, kill_all
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.accounts import user_token
from toban_testing.admin_client import AdminClient

pytestmark = pytest.mark.e2e

LINES = 120
WRITER = f"import time\nfor n in range({LINES}):\n    print('out', n, flush=True)\n    time.sleep(0.1)\n"
ODD = ("a b", "a?b=c#d", "%2F", "%2e%2e", "a;b", "Zürich-日本", "a+b", "...")


def environment(stack: Stack, token: str = "") -> dict[str, str]:
    """Of a command over REST, or with calls of the coordinators."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "TOBAN_"))}
    if token:
        return {**base, "TOBAN_URL": f"http://{stack.sites[0]}", "TOBAN_TOKEN": token}
    return {**base, "TOBAN_HOME": str(stack.home.root), "TOBAN_DIRECT": "1"}


def toban(given: dict[str, str], *argv: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "toban_cli", *argv], env=given, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


DEFINITIONS = """
apiVersion: toban/v1
kind: Job
metadata: {name: cli-file, labels: {team: ops}}
spec:
  timeout_seconds: 60
  retry: {max_retries: 2}
  steps: [{argv: [/bin/true]}, {type: http, http: {url: "https://example.com"}}]
---
apiVersion: toban/v1
kind: Schedule
metadata: {name: cli-file}
spec: {job: cli-file, daily_at: "02:30", timezone: Europe/Berlin}
---
apiVersion: toban/v1
kind: EventTrigger
metadata: {name: cli-file}
spec: {event_type: cli.file, job: cli-file}
"""


def test_a_file_is_compared_with_what_is_stored_and_deleted(stack: Stack, admin: AdminClient, tmp_path: Path) -> None:
    given, file = environment(stack, user_token(admin, "cli-file-robot", "admin")), tmp_path / "a.yaml"
    file.write_text(DEFINITIONS)
    assert toban(given, "apply", str(file))[0] == 0
    assert toban(given, "diff", str(file)) == (0, "", "")
    file.write_text(DEFINITIONS.replace("60", "61").replace("02:30", "02:31").replace("cli.file", "cli.files"))
    code, out, _ = toban(given, "diff", str(file))
    changes = [line[1:].strip() for line in out.splitlines() if line[0] in "+-" and line[:3] not in ("---", "+++")]
    # What the servers store has all the defaults that this command fills in.
    assert code == 1 and len(changes) == 6 and changes[:2] == ["timeout_seconds: 60", "timeout_seconds: 61"], out
    deleted = [f"{noun} cli-file deleted" for noun in ("trigger", "schedule", "job")]
    assert toban(given, "delete", str(file), "--yes")[1].splitlines() == deleted
    assert toban(given, "delete", str(file), "--yes")[0] == 66
    assert toban(given, "delete", str(file), "--yes", "--ignore-missing")[:2] == (0, "")


def test_output_and_waits_outlive_restarts_of_the_site(
    stack: Stack, admin: AdminClient, whole_afterwards: None
) -> None:
    steps = [{"argv": ["python3", "-c", WRITER]}]
    spec = {"steps": steps, "timeout_seconds": 60, "allow_shell": True}
    admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "cli-rest-writer"}, "spec": spec})
    given = environment(stack, user_token(admin, "cli-rest-robot", "admin"))
    [site] = [name for name in stack.processes() if name.startswith("admin-web")]
    command = [sys.executable, "-m", "toban_cli", "run", "start", "cli-rest-writer", "--follow"]
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None and following.stderr is not None
        notes: list[str] = []
        reader = threading.Thread(target=lambda: notes.extend(following.stderr or ()))
        reader.start()
        found: list[str] = []
        for line in following.stdout:
            found.append(line.rstrip("\n"))
            if len(found) == 20:
                # Without a chance to end its streams; a worker that is left would hold the port.
                record = stack.processes()[site]
                kill_all([record, *descendants([record])])
            elif len(found) == 60:
                stack.kill(site, signal.SIGTERM)
            if len(found) in (20, 60):
                assert wait_until(lambda: site not in stack.processes(), 30)
                stack.start(site)
        code = following.wait(60)
        reader.join()
    assert found == [f"out {number}" for number in range(LINES)], notes
    assert code == 0 and "SUCCEEDED" in notes[-1], notes

    [run_id] = [run.id for run in admin.runs(job="cli-rest-writer")]
    code, out, _ = toban(given, "run", "logs", str(run_id))
    assert (code, out.splitlines()) == (0, found)


@pytest.mark.long
def test_names_and_wrong_values_are_answered_alike_both_ways(stack: Stack, admin: AdminClient) -> None:
    direct, rest = environment(stack), environment(stack, user_token(admin, "cli-rest", "admin"))
    for name in ODD:
        for command in (("job", "get"), ("user", "delete"), ("limit", "get")):
            answers = toban(direct, *command, name), toban(rest, *command, name)
            assert answers[0] == answers[1] and answers[0][0] in (65, 66), (name, answers)
    for name in ("", "a/b", ".."):
        answers = toban(direct, "job", "delete", name), toban(rest, "job", "delete", name)
        assert answers[0] == answers[1] and answers[0][0] == 64
    for argv in (
        ("webhook", "set", "a", "--url", "ftp://x"),
        ("webhook", "set", "a"),
        ("settings", "set", "no", "3"),
    ):
        answers = toban(direct, *argv), toban(rest, *argv)
        assert answers[0] == answers[1] and answers[0][0] in (65, 66)
