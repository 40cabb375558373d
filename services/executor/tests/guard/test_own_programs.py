"""Programs of the executor itself in a guard: their input, their environment, and the ends of a job."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from toban_executor.decide.guard_types import AttemptStart, FreezeTurn, Kill, SetDeadline
from toban_executor.decide.models import AttemptEnd, StepOrder
from toban_executor.guard.clock import boottime, wall
from toban_fencing.executor_lease import Instant

READS = "import os, sys; print(sorted(os.environ), sys.stdin.read(), sys.stdin.read() == '', flush=True)"


def own(code: str, text: str = "{}") -> Any:
    return (StepOrder(type="http", argv=(sys.executable, "-I", "-c", code), stdin=text),)


def test_input_and_environment(guard: Any) -> None:
    env = {"PATH": "/bin", "LD_PRELOAD": "/x.so", "http_proxy": "x", "HOME": "/", "TOBAN_RUN_ID": "7"}
    text = "é" * 50_000
    assert guard.run("-", steps=own(READS, text), env=env).exit_code == 0
    names = "['HOME', 'LC_CTYPE', 'TOBAN_LEASE_FD', 'TOBAN_PAYLOAD_FILE', 'TOBAN_RUN_ID', 'TOBAN_SOCKET']"
    assert guard.text.replace(b"\n", b"").decode().replace("'LC_CTYPE', ", "") == (
        f"{names} {text} True".replace("'LC_CTYPE', ", "")
    )


def test_the_next_step_reads_nothing_of_it(guard: Any) -> None:
    steps = (*own(READS, "secret"), StepOrder(type="command", argv=("sh", "-c", "cat; ls -l /proc/self/fd")))
    assert guard.run("-", steps=steps).exit_code == 0
    assert guard.text.count(b"secret") == 1
    assert b"memfd" not in guard.text


@pytest.mark.parametrize(("fields", "cause"), [({"timeout_seconds": 0.5}, "timeout"), ({"lease": 1.5}, "lease")])
def test_it_ends_like_a_command(guard: Any, fields: Any, cause: str) -> None:
    end = guard.run("-", steps=own("import time; time.sleep(600)"), on_lease_loss="kill", **fields)
    assert (end.cause, end.signal) == (cause, signal.SIGTERM)


def test_a_kill_is_proved(guard: Any) -> None:
    token = guard.spawn("-", steps=own("import time; print('up', flush=True); time.sleep(600)"))
    start = guard.receive(AttemptStart)
    guard.send(Kill(token=token, cause="cancel", reason="asked", grace=5.0))
    end = guard.receive(AttemptEnd)
    assert (end.cause, end.signal) == ("cancel", signal.SIGTERM)
    with pytest.raises(ProcessLookupError):
        os.kill(start.pid, 0)


def test_it_is_frozen_and_goes_on(guard: Any) -> None:
    token = guard.spawn("-", steps=own("import time; time.sleep(2.5)"), lease=1.5, on_lease_loss="freeze")
    start = guard.receive(AttemptStart)
    assert guard.receive(FreezeTurn).frozen
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(start.pid)], capture_output=True, text=True, check=True)
    assert state.stdout[0] in "TDS"
    deadline = Instant(boottime() + 60, wall() + 60)
    guard.send(SetDeadline(token=token, deadline=deadline, thaw=True))
    assert guard.receive(AttemptEnd).exit_code == 0
