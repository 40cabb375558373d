"""The zygote of warm steps: an interpreter that has its imports loaded and forks once a step.

Run as a file by the interpreter of the job, started and owned by a slot supervisor (guard/zygotes.py), whose socket is descriptor 3. Standard
library only, Python 3.10 or newer.

Usage: python warm_zygote.py RUNNER [ARGUMENT ...]    RUNNER is a file with `prepare(arguments)`, done once, and `main(*call)`, done in each fork.

Messages are JSON objects, one a packet. The zygote sends {"ready": pid} when it has its imports, or {"failed": text} before it ends. Then the
supervisor sends {"call", "env", "cwd"} with four descriptors: standard input, output, error, and the pipe of the lease. The zygote answers with
{"forked": pid}, and {"ended": status} when the fork has, or with {"stale": file}.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # The module `typing` costs milliseconds.
    from typing import Any

# Not imported here is `threading`: each fork would pay for taking its state over.
_SOCKET_FD = 3
_MOST_BYTES = 1 << 19
_DESCRIPTORS = 4
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
# The clock that files have their times from.
_CLOCK_REALTIME_COARSE = 5
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


class FailedError(Exception):
    """The zygote cannot serve; the message says why."""


class CodeFiles:
    """The files that the imported modules came from, as they were. Made before the imports: what changes while they run is a change.

    Of installed packages only their folder is looked at, which every installation changes; of the standard library nothing.
    """

    def __init__(self) -> None:
        self._since = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
        self._library = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 (pathlib costs milliseconds)
        self._known: dict[str, tuple[int, ...]] = {}
        self._modules = 0

    def note(self) -> None:
        """Remember the files of modules that were imported since the last call."""
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        for module in list(sys.modules.values()):
            name = getattr(module, "__file__", None)
            if isinstance(name, str) and (path := self._watched(name)) not in ("", *self._known):
                self._known[path] = _signature(path, before=self._since)

    def changed(self) -> str:
        """The first file that is another one now; empty when there is none."""
        return next((path for path, known in self._known.items() if _signature(path) != known), "")

    def _watched(self, path: str) -> str:
        for folder in _PACKAGE_FOLDERS:
            before, found, _after = path.partition(f"/{folder}/")
            if found:
                return f"{before}/{folder}"
        return "" if path.startswith(self._library) else path


def _signature(path: str, before: int | None = None) -> tuple[int, ...]:
    """Of a file as it is; empty when there is none, or when it has changed since `before`."""
    try:
        found = os.stat(path)  # noqa: PTH116 (pathlib costs milliseconds)
    except OSError:
        return ()
    if before is not None and found.st_ctime_ns >= before:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


class Zygote:
    """`runner` is the module of the kind of step."""

    def __init__(self, sock: socket.socket, runner: types.ModuleType) -> None:
        self._sock = sock
        self._runner = runner
        self._files = CodeFiles()
        # Environment variables that the imports have set.
        self._variables: dict[str, str] = {}
        # What they have made of SIGCHLD, for forks.
        self._on_child: Any = signal.SIG_DFL
        # The fork that runs, with a descriptor that becomes readable at its end.
        self._child = 0
        self._pidfd = -1

    def prepare(self, arguments: list[str]) -> None:
        """Import. Raises FailedError when that left what a fork would not have, or would have twice."""
        before = dict(os.environ)
        self._runner.prepare(arguments)
        self._variables = {name: value for name, value in os.environ.items() if before.get(name) != value}
        if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 (pathlib costs milliseconds)
            threading = sys.modules.get("threading")
            named = threading.enumerate()[1:] if threading else []
            names = ", ".join(thread.name for thread in named) or "of a library"
            raise FailedError(f"the imports have started threads ({names}), which no fork would have")
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        else:
            raise FailedError("the imports have started processes")
        # Nothing but `_reap` takes the end of a fork.
        self._on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _keep_what_imports_made()
        _flush()
        self._files.note()
        gc.collect()
        gc.freeze()

    def serve(self) -> list[str]:
        """Fork once a request until the supervisor has closed its end; returns in forks alone: what the step calls."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while True:
            for fd, _event in poll.poll():
                if fd == self._pidfd:
                    poll.unregister(fd)
                    self._reap()
                    continue
                data, fds, _flags, _address = socket.recv_fds(self._sock, _MOST_BYTES, _DESCRIPTORS)
                if not data:
                    os._exit(0)
                request = json.loads(data)
                if self._child:
                    os._exit(1)
                if self._begin(request, fds):
                    return list(request["call"])
                if self._pidfd >= 0:
                    poll.register(self._pidfd, select.POLLIN)

    def _begin(self, request: dict[str, Any], fds: list[int]) -> bool:
        """True in the fork."""
        if changed := self._files.changed():
            _send(self._sock, {"stale": changed})
            _close(fds)
            return False
        pid = os.fork()
        if pid == 0:
            self._become_job(request, fds)
            return True
        self._child = pid
        _close(fds)
        self._pidfd = os.pidfd_open(pid)
        self._sock.send(b'{"forked": %d}' % pid)
        return False

    def _become_job(self, request: dict[str, Any], fds: list[int]) -> None:
        os.setsid()
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        _close(fds)
        self._sock.close()
        _prctl(_PR_SET_DUMPABLE, 1)
        if self._on_child not in (None, signal.SIG_DFL):
            signal.signal(signal.SIGCHLD, self._on_child)
        # Not before the fork: what one run has in its variables would stay in the memory of the next.
        _set_environment({**request["env"], **self._variables})
        os.chdir(request["cwd"])

    def _reap(self) -> None:
        """The fork has ended. What it made with CLONE_PARENT is a child of the zygote too, and found by the supervisor while it lives."""
        os.close(self._pidfd)
        try:
            _pid, status = os.waitpid(self._child, 0)
        except ChildProcessError:
            # Something else has reaped it. The end of this process shows the supervisor that the exit code is lost.
            os._exit(1)
        self._child, self._pidfd = 0, -1
        self._sock.send(b'{"ended": %d}' % status)


def _set_environment(wanted: dict[str, str]) -> None:
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _keep_what_imports_made() -> None:
    """Finalizers of objects that all forks share, such as a temporary directory: the end of one fork is not theirs."""
    weakref = sys.modules.get("weakref")
    finalize = getattr(weakref, "finalize", None)
    for one in list(getattr(finalize, "_registry", ())):
        one.atexit = False


def _flush() -> None:
    """What imports have written is in no log: forks would write the rest of it again."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()  # type: ignore[union-attr]
        except (OSError, ValueError, AttributeError):
            pass
    _libc.fflush(None)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _send(sock: socket.socket, message: dict[str, object]) -> None:
    sock.send(json.dumps(message).encode())


_libc = ctypes.CDLL(None, use_errno=True)
_libc_prctl = _libc.prctl


def _prctl(option: int, value: int) -> None:
    if _libc_prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _own_socket() -> socket.socket:
    """The supervisor's socket under a number that no descriptor of a job has; below it nothing stays free."""
    sock = socket.socket(fileno=os.dup(_SOCKET_FD))
    os.dup2(0, _SOCKET_FD, inheritable=False)
    return sock


def _hung_up(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))


def _load(path: str) -> types.ModuleType:
    """The runner, under a name of its own: a traceback of the job leaves its frames out by its file."""
    module = types.ModuleType("toban_step_runner")
    module.__file__ = path
    with open(path, "rb") as file:  # noqa: PTH123 (pathlib costs milliseconds)
        exec(compile(file.read(), path, "exec"), module.__dict__)
    return module


def _finish(runner: types.ModuleType, call: list[str]) -> int:
    """Exit code of the step; what ends an interpreter in order is done, but for taking down its modules."""
    try:
        code = runner.main(*call)
    except SystemExit as error:
        code = error.code
        if not (code is None or isinstance(code, int)):
            sys.stderr.write(f"{code}\n")
            code = 1
    except BaseException as error:
        sys.__excepthook__(type(error), error, error.__traceback__)
        code = 1
    shutdown = getattr(sys.modules.get("threading"), "_shutdown", None)
    if shutdown is not None:
        shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            code = code or 120
    return int(code or 0) & 0xFF


def main(path: str, arguments: list[str]) -> None:
    """Prepare, then serve; a fork ends here with the exit code of its step."""
    sock = _own_socket()
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if _hung_up(sock):
            # The supervisor has ended before that.
            os._exit(1)
        # Other jobs of this user can neither trace a process that is not dumpable nor read its memory or its descriptors.
        _prctl(_PR_SET_DUMPABLE, 0)
        os.close(os.pidfd_open(os.getpid()))
        runner = _load(path)
        zygote = Zygote(sock, runner)
        zygote.prepare(arguments)
        _send(sock, {"ready": os.getpid()})
    except BaseException as error:
        text = str(error) if isinstance(error, FailedError) else f"{type(error).__name__}: {error}"
        _send(sock, {"failed": text[:1000]})
        os._exit(1)
    os._exit(_finish(runner, zygote.serve()))


if __name__ == "__main__":
    if sys.path[0] == os.path.dirname(__file__):  # noqa: PTH120 (pathlib costs milliseconds)
        # It is no place for modules of the job.
        del sys.path[0]
    main(sys.argv[1], sys.argv[2:])
