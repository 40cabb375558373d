"""Jobs that try to outlive their run and to end who watches them, for executors of any class.

Each is a command whose `@` stands for a mark: a word that is in the command line of each process of the job, and of no other.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    """The command of a Python program; the interpreter is Toban's own."""
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


@contextlib.contextmanager
def new_mark() -> Iterator[str]:
    """A mark; what still has it afterwards is killed."""
    made = f"31{os.getpid()}{os.urandom(3).hex().translate(str.maketrans('abcdef', '012345'))}"
    try:
        yield made
    finally:
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


def gone(admin: AdminClient, mark: str) -> bool:
    """Whether no process of the job is left, soon."""
    try:
        return admin.until(lambda: not marked(mark), of="no process of the job is left")
    except TimeoutError:
        return False
