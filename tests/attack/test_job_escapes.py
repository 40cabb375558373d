"""Jobs that try to outlive their run, to stop who watches them, and to read what is not theirs, in class `shared`.

In that class a job runs as the user of its executor: what that leaves open is in docs/security.md. Cases of other classes belong beside these.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_testing.admin_client import AdminClient

FORKS = """
import os, sys, time
for step in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
os.closerange(0, 1024)
os.execvp("sleep", ["sleep", sys.argv[1]])
"""
SUBREAPER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", sys.argv[1]])
    os._exit(0)
"""
HOPS = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
while True:
    if os.fork():
        os._exit(0)
    time.sleep(0.001)
"""
IGNORES = """
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(60)
"""


def code(text: str) -> list[str]:
    return [sys.executable, "-I", "-c", text, "@"]


DAEMONS: dict[str, list[str]] = {
    "a new session": ["sh", "-c", "setsid sleep @ & exit 0"],
    "two forks and closed descriptors": code(FORKS),
    "a subreaper of its own": code(SUBREAPER),
    "an empty environment": ["sh", "-c", "env -i setsid sleep @ </dev/null >/dev/null 2>&1 &"],
    "a process that hops": code(HOPS),
    "signals that are ignored": code(IGNORES),
    "200 children": ["sh", "-c", "for i in $(seq 200); do setsid sleep @ & done"],
    "a stopped process": ["sh", "-c", "setsid sleep @ & kill -STOP $!; exit 0"],
    "another control group": [
        "sh",
        "-c",
        "for f in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs 2>/dev/null | head -20); do echo $$ >$f; done 2>/dev/null; setsid sleep @ &",
    ],
}
ENDS = {
    "the kill of its parent": ["sh", "-c", "setsid sleep @ & kill -KILL $PPID; exec sleep @"],
    "a signal to its whole group": ["sh", "-c", "setsid sleep @ & kill -KILL 0; exec sleep @"],
}


@pytest.fixture
def mark() -> Iterator[str]:
    """A word that is in the command line of each process of the job, and of no other."""
    made = f"31{os.getpid()}{os.urandom(3).hex().translate(str.maketrans('abcdef', '012345'))}"
    yield made
    for pid in marked(made):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def marked(mark: str) -> list[int]:
    """Processes with the mark in their command line, which are no zombies."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def run(admin: AdminClient, argv: list[str], mark: str, **spec: Any) -> int:
    """Starts a job with this command, whose `@` is the mark."""
    steps = [{"argv": [mark if word == "@" else word.replace("@", mark) for word in argv]}]
    body = {"steps": steps, "allow_shell": True, "retry": {"max_attempts": 1}, **spec}
    admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "escape"}, "spec": body})
    [run_id] = admin.start("escape")
    return run_id


@pytest.mark.parametrize("kind", DAEMONS)
def test_no_process_outlives_its_run(attacks: Any, admin: AdminClient, mark: str, kind: str) -> None:
    run_id = run(admin, DAEMONS[kind], mark)
    admin.until_ended(run_id)
    attacks.expect(kind, refused=gone(admin, mark), instead=marked(mark))


@pytest.mark.parametrize("kind", ENDS)
def test_who_attacks_its_guard_is_ended(attacks: Any, admin: AdminClient, mark: str, kind: str) -> None:
    run_id = run(admin, ENDS[kind], mark, timeout_seconds=3)
    ended = admin.until_ended(run_id, seconds=120)
    attacks.expect(kind, refused=gone(admin, mark) and ended.state != "SUCCEEDED", instead=(ended.state, marked(mark)))
    again = run(admin, ["true"], mark)
    assert admin.until_ended(again, seconds=120).state == "SUCCEEDED", "the executor works on"


def gone(admin: AdminClient, mark: str) -> bool:
    try:
        return admin.until(lambda: not marked(mark), of="no process of the job is left")
    except TimeoutError:
        return False


def test_a_job_is_given_nothing_of_the_services(attacks: Any, admin: AdminClient, stack: Any, mark: str) -> None:
    """Its environment, descriptors and arguments, and those of the guards above it, have no credential."""
    script = "; echo --; ".join(
        (
            "cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'",
            "ls -l /proc/$$/fd | sed 's/.* //'",
            "ps -eo args",
            "echo end",
        )
    )
    run_id = run(admin, ["sh", "-c", script], mark)
    assert admin.until_ended(run_id).state == "SUCCEEDED"

    def whole() -> str:
        lines = admin.log(run_id)
        return "\n".join(lines) if lines[-1:] == ["end"] else ""

    text = admin.until(whole, of="the output of the job")
    environment, descriptors, arguments, _ = text.split("\n--\n")
    for name in ("DATABASE_URL", "REDIS_URL", "S3_", "SECRETS_KEY", "PASSWORD"):
        attacks.expect(f"{name} in an environment", refused=f"SCHEDULER_{name}" not in environment)
    for word in ("journal", "tls.key", "instance-secret", "sqlite"):
        attacks.expect(f"{word} among descriptors", refused=word not in descriptors)
    endpoints = stack.endpoints()
    for what, secret in {"PostgreSQL": endpoints.database_url, "Redis": endpoints.redis_url}.items():
        for part in ("environment", environment), ("command line", arguments):
            attacks.expect(f"the address of {what} in a {part[0]}", refused=secret not in part[1])


def test_a_job_reads_no_file_of_another_user(attacks: Any, stack: Any) -> None:
    """Keys, state and work folders are closed to other users of the machine."""
    folders = [
        *stack.home.tls.glob("*/tls.key"),
        *stack.home.data.glob("executor-*"),
        *stack.home.data.glob("executor-*/instance-secret"),
    ]
    for path in folders:
        attacks.expect(
            f"{path.name} for others", refused=path.stat().st_mode & 0o077 == 0, instead=oct(path.stat().st_mode)
        )
