"""A service that is started as a fork is what it is when it is executed: to itself, and to the process that has started it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_testing import fork_server

# Not compared: what Python and libreadline add to the environment of a process behind its back.
PROBE = """
import json, os, signal, sys, threading
print(json.dumps({
    "name": __name__, "argv": sys.argv, "command": sys.orig_argv, "path": sys.path[0], "folder": os.getcwd(),
    "environment": {name: value for name, value in os.environ.items() if name not in ("LC_CTYPE", "COLUMNS", "LINES")}, "parent": os.getppid(),
    "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(), "umask": os.umask(0o22),
    "masked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "files": sorted(map(int, os.listdir("/proc/self/fd"))),
    "handlers": [str(signal.getsignal(number)).partition(" at ")[0] for number in range(1, 32)],
    "threads": threading.active_count(), "input": sys.stdin.read(), "main": sys.modules["__main__"].__dict__ is globals(),
    "streams": [(one.encoding, one.errors, one.line_buffering) for one in (sys.stdin, sys.stdout, sys.stderr)],
}))
print("to the error output", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the program `probe`, which may be started as a fork."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(fork_server.IMPORTED, "probe", ())
    (tmp_path / "probe.py").write_text(PROBE)
    yield tmp_path
    fork_server.end()


def facts(**given: Any) -> tuple[dict[str, Any], str, int]:
    """What the program says of itself, its error output and its exit code."""
    command = [sys.executable, "-m", "probe", "a", "b"]
    done = subprocess.run(command, capture_output=True, text=True, input="typed", check=False, **given)
    return json.loads(done.stdout), done.stderr, done.returncode


@pytest.mark.parametrize("given", [{}, {"start_new_session": True, "env": {**os.environ, "TOBAN_PROBE": "1"}}])
def test_a_fork_is_like_an_executed_program(
    probe: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    forked, *ends = facts(**given)
    monkeypatch.setattr(fork_server, "start", lambda *_, **__: None)
    executed, *their_ends = facts(**given)
    assert {name: (fact, executed[name]) for name, fact in forked.items() if fact != executed[name]} == {}
    assert ends == their_ends == ["to the error output\n", 7]


def test_a_fork_is_signalled_and_waited_for(probe: Path) -> None:
    with subprocess.Popen([sys.executable, "-m", "probe"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert b"fork_server" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("name", ["PYTHONDEVMODE", "LANG", "LD_PRELOAD", "TZ"])
def test_what_is_read_at_the_start_of_a_program_is_not_shared(probe: Path, name: str) -> None:
    command, environment = [sys.executable, "-m", "probe"], {**os.environ, name: "0"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert b"fork_server" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.kill()
