"""Only processes of the stack are stopped, together with their descendants."""

import dataclasses
import os
import platform
import signal
import sys
from pathlib import Path

import pytest

from toban_stack import processes
from toban_stack.errors import tail
from toban_stack.processes import ProcessRecord, Program
from toban_stack.wait import wait_until


def shell(tmp_path: Path, script: str, grace_seconds: float = 5.0) -> ProcessRecord:
    program = Program(
        name="shell",
        role="test",
        argv=("/bin/sh", "-c", script),
        environment={"PATH": os.environ["PATH"]},
        log=tmp_path / "shell.log",
        grace_seconds=grace_seconds,
    )
    return processes.spawn(program)


def logged(tmp_path: Path, line: str) -> bool:
    return wait_until(lambda: line in tail(tmp_path / "shell.log"), 60)


def test_a_reused_pid_is_not_ours(tmp_path: Path) -> None:
    record = shell(tmp_path, "sleep 100 & echo up; wait")
    assert logged(tmp_path, "up") and processes.alive(record)
    for stranger in (
        dataclasses.replace(record, started=record.started - 1),
        dataclasses.replace(record, boot="another"),
    ):
        assert not processes.alive(stranger)
        assert not processes.send(stranger, signal.SIGKILL)
        assert processes.stop(stranger) == "had already ended"
    assert processes.alive(record)
    assert processes.stop(record) == "stopped, remaining child processes killed"


@pytest.mark.parametrize("first", [":", "kill -STOP $$"])
def test_a_process_that_ignores_signals_and_its_session_leaders_are_killed(tmp_path: Path, first: str) -> None:
    script = f"trap '' TERM; setsid sleep 100 & echo up; {first}; while :; do sleep 0.05; done"
    record = shell(tmp_path, script, grace_seconds=0.3)
    assert logged(tmp_path, "up")
    assert wait_until(lambda: len(processes.descendants([record])) >= 1, 60)
    family = processes.descendants([record])
    assert processes.stop(record).startswith("killed after 0.3 s")
    assert not processes.alive(record)
    assert not [child for child in family if processes.alive(child)]
    assert processes.stop(record) == "had already ended"


def test_its_own_session_and_no_terminal(tmp_path: Path) -> None:
    record = shell(tmp_path, "ps -o sid= -p $$ | tr -d ' '; cat; echo end")
    assert logged(tmp_path, "end")
    assert str(record.pid) in tail(tmp_path / "shell.log")


def test_a_process_whose_first_thread_has_ended_still_runs(tmp_path: Path) -> None:
    """It still holds its files and ports: a server that is being killed has not ended before its last thread."""
    exit_call = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    script = (
        "import ctypes, threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "print('up', flush=True)\n"
        f"ctypes.CDLL(None).syscall({exit_call}, 0)\n"
    )
    program = Program(
        name="shell",
        role="test",
        argv=(sys.executable, "-c", script),
        environment={},
        log=tmp_path / "shell.log",
    )
    record = processes.spawn(program)
    assert logged(tmp_path, "up")
    state = Path(f"/proc/{record.pid}/stat")
    assert wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z", 60)
    assert processes.alive(record)
    assert processes.send(record, signal.SIGKILL)
    assert wait_until(lambda: not processes.alive(record), 60)
