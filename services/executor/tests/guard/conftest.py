"""Steps that fork from zygotes, in real guards."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.adapters import python_step_runner, warm_zygote
from toban_executor.decide.models import AttemptEnd, StepOrder
from toban_executor.guard.process_tree import children, slot_of, start_time

MODULE = """
import json, os, sys, time, subprocess, threading
LOADED_BY = os.getpid()
MARK = os.environ.get("MARK", "")

def report(**payload):
    print(json.dumps({"payload": payload, "pid": os.getpid(), "ppid": os.getppid(), "loaded_by": LOADED_BY, "mark": MARK,
        "run": os.environ.get("TOBAN_RUN", ""), "cwd": os.getcwd(), "sid": os.getsid(0), "argv": sys.argv}))
    print("to stderr", file=sys.stderr)

def stdin():
    print("read", repr(sys.stdin.read()), sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:5])

def fails(): raise ValueError("no")
def leaves(code=7): sys.exit(code)
def dies(): os.kill(os.getpid(), 9)
def sleeps():
    print("ready", flush=True)
    time.sleep(1000)
def ignores():
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeps()
def counts():
    while True:
        with open(os.environ["OUT"], "a") as file: file.write("x")
        time.sleep(0.01)
def daemon():
    script = "trap '' TERM; echo; sleep 1000; :"
    child = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
def parent():
    # It sleeps once the supervisor has its report of the fork. No event outside the kernel shows that state.
    while open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)
    os.kill(os.getppid(), 9)
    time.sleep(0.3)
    sys.exit(5)
def stops_parent():
    import signal
    os.kill(os.getppid(), signal.SIGSTOP)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds module `shop`."""
    made = tmp_path / "modules"
    made.mkdir()
    (made / "shop.py").write_text(MODULE)
    return made


class Warm:
    """A guard, and the zygotes of its first slot."""

    def __init__(self, guard: Any, folder: Path) -> None:
        self.guard = guard
        self.folder = folder

    def spawn(self, function: str, *, env: dict[str, str] | None = None, **fields: Any) -> int:
        steps = (self.step(self.folder, function, preload=fields.pop("preload", "")),)
        env = {"PATH": os.environ["PATH"], **(env or {})}
        return int(self.guard.spawn("-", steps=steps, env=env, **fields))

    def run(self, function: str, **fields: Any) -> AttemptEnd:
        self.guard.blocks.clear()
        self.spawn(function, **fields)
        end = self.guard.receive(AttemptEnd)
        assert isinstance(end, AttemptEnd)
        return end

    def report(self, **fields: Any) -> Any:
        end = self.run("report", **fields)
        assert (end.exit_code, end.cause) == (0, ""), self.guard.text
        return json.loads(next(line for line in self.guard.text.splitlines() if line.startswith(b"{")))

    @property
    def supervisor(self) -> int:
        [pid] = [pid for pid in children(self.guard.guards.supervisor.pid) if slot_of(pid) == 0]
        return pid

    @property
    def zygotes(self) -> list[int]:
        return [pid for pid in children(self.supervisor) if start_time(pid)]

    @staticmethod
    def step(folder: Path, function: str, *, module: str = "shop", preload: str = "", **fields: Any) -> StepOrder:
        """A warm step."""
        python, runner = (sys.executable, "-I", "-S"), python_step_runner.__file__
        call = ("own", f"{module}:{function}", str(folder))
        return StepOrder(
            type="python",
            argv=(*python, runner, *call),
            warm_argv=(*python, warm_zygote.__file__, runner, str(folder), "--", preload or module),
            warm_call=call,
            **fields,
        )

    def started(self, function: str, **fields: Any) -> tuple[int, int]:
        """Token and pid of a warm step that has said `ready`."""
        self.guard.blocks.clear()
        token = self.spawn(function, **fields)
        self.guard.receive_text(b"ready")
        [zygote] = self.zygotes
        return token, children(zygote)[0]


@pytest.fixture
def warm(shared_guard: Any, folder: Path) -> Iterator[Warm]:
    yield Warm(shared_guard, folder)
    shared_guard.end_zygotes()


@pytest.fixture
def own_warm(own_guard: Any, folder: Path) -> Warm:
    return Warm(own_guard, folder)


@pytest.fixture
def warm_kit() -> type[Warm]:
    """For guards of a test's own."""
    return Warm
