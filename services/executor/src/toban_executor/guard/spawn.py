"""Starts a program without fork: finding it, the call itself, and the reason when it does not start."""

import os
import signal
import stat
from collections.abc import Mapping
from pathlib import Path

from toban_executor.decide.guard_types import ProcessEnd

LEASE_FD = 3
"""The number under which a job finds the pipe whose end of file means: lease lost."""

RESET_SIGNALS = [
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
]
"""A program finds these as they are by default, whatever the process that starts it does with them: a shell cannot trap one that it found ignored."""


class SpawnError(Exception):
    """The program did not start; the message says why and what to check."""


def find_program(name: str, path: str) -> str:
    """The file that `name` means: itself when it has a slash, else the first executable one in `path`.

    Raises SpawnError when there is none.
    """
    if not name:
        raise SpawnError("program is empty: the step's argv needs a first element")
    if "/" in name:
        return name
    directories = [entry for entry in path.split(":") if entry]
    for directory in directories:
        candidate = f"{directory}/{name}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):  # noqa: PTH112 (hot path)
            return candidate
    raise SpawnError(
        f"program '{name}' not found in PATH {path or '(empty)'}; "
        "install it on this executor or name it by an absolute path"
    )


def enter(directory: str) -> None:
    """Make `directory` the working directory of the next spawn (a slot has one job at a time)."""
    try:
        os.chdir(directory)
    except OSError as error:
        raise SpawnError(f"working directory '{directory}': {os.strerror(error.errno or 0)}") from None


def start_process(
    *,
    program: str,
    argv: list[str] | tuple[str, ...],
    env: Mapping[str, str],
    stdin: int,
    stdout: int,
    stderr: int,
    lease: int,
) -> int:
    """Start `program` in a session of its own with just descriptors 0, 1, 2 and LEASE_FD; returns its pid.

    Raises SpawnError with a text for people. posix_spawn does not copy the guard's memory and reports a failed exec here.
    """
    actions = [
        (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_DUP2, stdout, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
        (os.POSIX_SPAWN_DUP2, lease, LEASE_FD),
    ]
    try:
        return os.posix_spawn(
            program, argv, env, file_actions=actions, setsid=True, setsigmask=[], setsigdef=RESET_SIGNALS
        )
    except (OSError, ValueError) as error:
        raise SpawnError(_why(program, error)) from None


def start_zygote(*, argv: tuple[str, ...], env: Mapping[str, str], sock: int) -> int:
    """Start a zygote (guard/zygotes.py) without output, with its socket as descriptor 3; returns its pid. Raises SpawnError."""
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    try:
        return start_process(program=argv[0], argv=argv, env=env, stdin=null, stdout=null, stderr=null, lease=sock)
    finally:
        os.close(null)


def process_end(status: int) -> ProcessEnd:
    """What `waitpid` says of the end of a process."""
    if os.WIFSIGNALED(status):
        return ProcessEnd(signal=os.WTERMSIG(status))
    return ProcessEnd(exit_code=os.WEXITSTATUS(status))


def _why(program: str, error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return f"program '{program}': {error} (an argument or variable holds a NUL byte?)"
    if isinstance(error, FileNotFoundError):
        return _why_not_found(program)
    if isinstance(error, PermissionError):
        return _why_not_permitted(program)
    if error.errno == 8:  # ENOEXEC
        return f"program '{program}' cannot be executed here: no #! line, or built for another machine"
    return f"program '{program}' did not start: {os.strerror(error.errno or 0)}"


def _why_not_found(program: str) -> str:
    if Path(program).exists():
        return f"program '{program}' exists but the interpreter in its #! line (or its loader) does not"
    return f"program '{program}' not found; check the path on this executor"


def _why_not_permitted(program: str) -> str:
    try:
        mode = Path(program).stat().st_mode
    except OSError:
        return f"program '{program}' cannot be reached by the executor's user"
    if stat.S_ISDIR(mode):
        return f"program '{program}' is a directory"
    return f"program '{program}' is not executable (mode {stat.S_IMODE(mode):04o}); chmod +x it"
