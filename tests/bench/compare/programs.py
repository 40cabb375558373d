"""Starts other commits' programs so that an interrupt of this one leaves nothing of them behind."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What belongs to the caller's own stack or environment and would reach into the measured ones.
FOREIGN = ("TOBAN_", "SCHEDULER_", "VIRTUAL_ENV", "PYTHON", "MAKE", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
LAST_LINES = 15
KILL_ROUNDS, KILL_PAUSE = 40, 0.05


class CompareError(RuntimeError):
    """The comparison cannot be made; the message is for the person who asked for it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command line, where it runs, and the file that receives its output."""

    title: str
    argv: Sequence[str]
    folder: Path
    log: Path
    environment: Mapping[str, str]


def run(*programs: Program) -> None:
    """Run programs side by side until all have ended. Raises CompareError with the last lines of one that failed.

    Whatever ends the wait ends what still runs: each program has a session of its own, which no Ctrl-C of the terminal reaches.
    """
    running: list[tuple[Program, subprocess.Popen[bytes]]] = []
    try:
        for program in programs:
            with program.log.open("ab") as log:
                running.append((program, _start(program, log.fileno())))
        for program, process in running:
            if process.wait() != 0:
                tail = "\n".join(program.log.read_text(errors="replace").splitlines()[-LAST_LINES:])
                raise CompareError(f"{program.title} failed (exit {process.returncode}):\n{tail}")
    finally:
        for _, process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _start(program: Program, log: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        list(program.argv),
        cwd=program.folder,
        env=dict(program.environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def environment_of(checkout: Path, **variables: str) -> dict[str, str]:
    """The caller's environment without its own stack and Python, but with the checkout's environment first in PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    own = str(Path(sys.executable).parent)
    path = [folder for folder in kept.get("PATH", os.defpath).split(os.pathsep) if folder != own]
    return {**kept, "PATH": os.pathsep.join([str(checkout / ".venv" / "bin"), *path]), **variables}


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back interrupts during a short step that must not end halfway. Programs started meanwhile inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def kill_leftovers(folder: Path) -> None:
    """Kill every process without a terminal whose command line, environment or working folder lies in `folder`, until none is left.

    What a person looks at the folder with has a terminal; stacks and bootstraps have none.
    """
    for _ in range(KILL_ROUNDS):
        if not sum(_kill_if_inside(int(entry.name), os.fsencode(folder)) for entry in _processes()):
            return
        time.sleep(KILL_PAUSE)


def _processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]


def _kill_if_inside(pid: int, folder: bytes) -> bool:
    entry = Path(f"/proc/{pid}")
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        terminal = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[4])
        seen = b"\0".join([(entry / "cmdline").read_bytes(), (entry / "environ").read_bytes(), _cwd(entry)])
        if terminal or not re.search(re.escape(folder) + rb"(?![^/:\0])", seen):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _cwd(entry: Path) -> bytes:
    return os.fsencode((entry / "cwd").readlink())
