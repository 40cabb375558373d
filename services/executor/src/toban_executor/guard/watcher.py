"""The first process of a container with an executor: ``python -m toban_executor watch``. It looks for an executor or a guard that is stopped.

A job of class `shared` has the uid of these processes, so it can stop them, and the jobs that they freeze or kill at the deadline would run on. The
first process of a pid namespace is the one that the kernel lets no other process of it stop or kill. It is also the parent of what has lost its own.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence

from toban_executor.decide.stopped import LOOK_SECONDS, Stops, react
from toban_executor.guard.clock import boottime
from toban_executor.guard.freezer import thread_states
from toban_executor.guard.process_tree import (
    become_subreaper,
    children,
    descendants,
    has_argument,
    kill_all,
    slot_of,
)

WITNESS_SECONDS = 20.0
"""How long guards and a witness may go on after an executor that has died: they report what had ended."""
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_STOPPED = ord("T")
_GUARD, _WITNESS = b"toban_executor.guard", b"witness"
_KILLED = 128 + signal.SIGKILL


def watch(argv: Sequence[str]) -> int:
    """Run the executor by this command line until it has ended; its exit code, or 137 when all was killed because something stops its processes."""
    become_subreaper()
    if os.getpid() != 1:
        _say("it is not the first process of a container: a job of class shared can stop it")
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD})
    executor = os.posix_spawn(argv[0], list(argv), os.environ, setsigmask=[])
    stops, last_look = Stops(), 0.0
    while True:
        received = signal.sigtimedwait({*_FORWARDED, signal.SIGCHLD}, LOOK_SECONDS)
        if received is not None and received.si_signo in _FORWARDED:
            with contextlib.suppress(ProcessLookupError):
                os.kill(executor, received.si_signo)
        code = _reap(executor)
        if code is not None:
            return _finish(code)
        if boottime() < last_look + LOOK_SECONDS:
            continue
        last_look = boottime()
        stopped = [pid for pid in own_processes(executor) if _STOPPED in thread_states(pid)]
        stops, reaction = react(stops, stopped, last_look)
        for pid in reaction.resume:
            _say(f"process {pid} of the executor was stopped; it goes on")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if reaction.end_all:
            _say(
                "its processes are stopped again and again, so everything ends before a lease is lost; a job of this executor does that"
            )
            _kill_everything()
            return _KILLED


def own_processes(executor: int) -> Iterator[int]:
    """The executor, its guards, and a witness; guards that have lost their parent are children of this process."""
    yield executor
    above = [executor, os.getpid()]
    for parent in above:
        for pid in children(parent):
            if has_argument(pid, _GUARD) or has_argument(pid, _WITNESS):
                yield pid
                yield from (
                    below for below in children(pid) if slot_of(below) is not None or has_argument(below, _WITNESS)
                )


def _reap(executor: int) -> int | None:
    """The exit code of the executor, once it has ended."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == executor:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


def _finish(code: int) -> int:
    """The container ends with this process, so what reports for a dead executor gets its time."""
    end = boottime() + WITNESS_SECONDS
    while boottime() < end and _has_child():
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_SECONDS)
        _reap(0)
    return code if code >= 0 else 128 - code


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _kill_everything() -> None:
    """SIGKILL until no process is left below this one."""
    while _has_child():
        kill_all(descendants(os.getpid()))
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_SECONDS / 20)
        _reap(0)


def _say(text: str) -> None:
    sys.stderr.write(f"watcher of the executor: {text}\n")
    sys.stderr.flush()
