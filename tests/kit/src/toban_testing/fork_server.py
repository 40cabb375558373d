"""Starts `python -m toban_...` for tests as a fork of a process that has imported the service: imports are most of the CPU time of a start.

A fork server for each service starts at its first use; it has one thread and opens nothing. It forks with CLONE_PARENT: the fork is a child of the
process that asked, which waits for it and signals it, and has the environment, files and working folder that were given, as if it had been executed.
Only /proc shows another command line and first environment. What Python or a library reads while it starts (PYTHON*, LANG, LD_*, ...) must be as in
the fork server, standard files must be no terminals, and the processor must be known: else the program is executed, or with TOBAN_TEST_FORKS=0, as in
the second `make test` of `make all`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toban_stack import processes, state_file
from toban_stack.processes import ProcessRecord, Program

# What each service imports at its start anyway.
IMPORTED = {
    "toban_coordinator": ("toban_coordinator.main", "toban_coordinator.main.run"),
    "toban_executor": ("toban_executor.main", "toban_executor.config"),
    "toban_log_archiver": ("toban_log_archiver.main",),
    # Its parent process must not import gRPC.
    "toban_admin_web": ("toban_admin_web.main",),
    "toban_cli": ("toban_cli.main", "toban_cli.client"),
}
# Read before a program's first line: the fork server has read its own.
READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "GLIBC_", "MALLOC_", "OPENSSL_", "SSL_", "GRPC_")
# Services set it to 0 themselves before they import gRPC, also those that a test runs in its own process.
OWN = "GRPC_ENABLE_FORK_SUPPORT"
CLONE_PARENT = 0x8000
# Number of the system call clone.
CLONE = {"x86_64": 56, "aarch64": 220}
LARGEST_REQUEST = 200_000
SWITCH = "TOBAN_TEST_FORKS"

_execute: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_servers: dict[tuple[str, int], _Server] = {}
_lock = threading.Lock()
_of_start: dict[str, str] = {}


def install() -> None:
    """From now on `subprocess` and stacks of this process start services as forks."""
    _of_start.update(_read_at_start(os.environ))
    if os.environ.get(SWITCH) != "0" and platform.machine() in CLONE:
        subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
        state_file.spawn = _spawn  # type: ignore[attr-defined]


def end() -> None:
    """Ends the fork servers of this process."""
    while _servers:
        _servers.popitem()[1].end()


def start(
    argv: Sequence[str], environment: Mapping[str, str], *, cwd: str, files: Sequence[int], session: bool
) -> int | None:
    """The pid of a fork that runs `argv` with `files` as its first three; None when it has to be executed."""
    program, option, module = [*argv, "", "", ""][:3]
    if (program, option) != (sys.executable, "-m") or module not in IMPORTED or any(map(os.isatty, files)):
        return None
    if _read_at_start(environment) != _of_start:
        return None
    with _lock:
        # A fork of this process has servers of its own.
        key = module, os.getpid()
        server = _servers[key] = _servers.get(key) or _Server(module)
    return server.fork({"argv": [*argv], "environment": dict(environment), "cwd": cwd, "session": session}, files)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START) and name != OWN}


class _Server:
    """One fork server, as the process that has started it sees it."""

    def __init__(self, module: str) -> None:
        self._lock = threading.Lock()
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "toban_testing.fork_server", module, str(its.fileno())]
        # Pipes, for which Python's standard files keep no position: it would be one of other files in a fork.
        pipe = subprocess.PIPE
        # What a test has changed in the environment is not for others.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(READ_AT_START)
        } | _of_start
        self._process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[its.fileno()]
        )
        its.close()

    def fork(self, request: dict[str, Any], files: Sequence[int]) -> int | None:
        message = json.dumps(request).encode()
        if len(message) > LARGEST_REQUEST:
            return None
        with self._lock:
            try:
                socket.send_fds(self._socket, [message], files)
                return int(self._socket.recv(32)) or None
            except (OSError, ValueError) as error:
                assert self._process.stderr
                said = self._process.stderr.read().decode(errors="replace")
                raise RuntimeError(
                    f"a fork server of tests has ended ({error}); {SWITCH}=0 goes without: {said}"
                ) from None

    def end(self) -> None:
        self._socket.close()
        self._process.communicate()


def _execute_child(self: Any, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:
    """`Popen._execute_child`, whose arguments these are. Files of the child that are not redirected are ours."""
    close_fds, pass_fds, cwd, env, _, _, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = rest[:13]
    restore_signals, gid, gids, uid, umask, new_session, process_group = rest[13:20]
    pid = None
    ordinary = close_fds and restore_signals and not (pass_fds or shell or executable or preexec_fn)
    ours = (gid, gids, uid, umask, process_group) == (None, None, None, -1, -1)
    if ordinary and ours and isinstance(args, list | tuple) and all(isinstance(word, str) for word in args):
        files = [own if number == -1 else number for own, number in enumerate((p2cread, c2pwrite, errwrite))]
        environment = os.environ if env is None else env
        pid = start(args, environment, cwd=os.fspath(cwd or Path.cwd()), files=files, session=new_session)
    if pid is None:
        _execute(self, args, executable, preexec_fn, *rest)
        return
    self.pid, self._child_created = pid, True
    self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def _spawn(program: Program) -> ProcessRecord:
    """`toban_stack.processes.spawn`."""
    program.remove_leftovers()
    with Path(os.devnull).open("rb") as nothing, os.fdopen(program.open_log(), "ab") as log:
        files = [nothing.fileno(), log.fileno(), log.fileno()]
        pid = start(program.argv, program.environment, cwd=str(Path.cwd()), files=files, session=True)
    return processes.spawn(program) if pid is None else processes.record_of(program, pid)


def _serve(module: str, connection: socket.socket) -> dict[str, Any] | None:
    """In the fork server until its starter ends: None. In a fork: the request."""
    for name in IMPORTED.get(module, ()):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    while True:
        message, files, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, 3)
        if not message:
            return None
        # Only the thread that forks would go on in the fork.
        pid = _fork() if threads == 1 else -1
        if pid == 0:
            connection.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            return dict(json.loads(message))
        connection.send(b"%d" % max(pid, 0))
        for file in files:
            os.close(file)


def _fork() -> int:
    """As os.fork, but the child's parent is ours; -1 when the kernel does not allow it."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = int(ctypes.CDLL(None).syscall(CLONE[platform.machine()], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def _run(request: dict[str, Any]) -> None:
    """In a fork: runs the module as the main program."""
    if request["session"]:
        os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    gc.unfreeze()
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.orig_argv[:] = request["argv"]
    sys.argv[:] = request["argv"][2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def main(module: str, descriptor: str) -> None:
    """The fork server. Usage: python -m toban_testing.fork_server MODULE DESCRIPTOR"""
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[OWN] = "0"
    request = _serve(module, socket.socket(fileno=int(descriptor)))
    if request is not None:
        signal.signal(signal.SIGINT, interrupted)
        _run(request)


if __name__ == "__main__":
    main(*sys.argv[1:])
