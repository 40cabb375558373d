"""The supervisor's event loop: it waits for ends of processes, for requests and for the next start, and polls nothing.

One thread. Requests come over a Unix socket, a JSON line each: `supervise` with a program, `release` with names. A
restart on its own initiative needs the stack's lock, so it never interferes with a `make up` that is under way.
"""

import fcntl
import json
import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from toban_runtime.clock import SystemClock
from toban_stack import certs
from toban_stack.errors import StackError
from toban_stack.processes import Program
from toban_stack.stack_paths import StackPaths
from toban_stack.supervisor.children import Process
from toban_stack.supervisor.policy import Backoff
from toban_stack.supervisor.table import Table

# While `make up` holds the lock, a due restart is tried again after this time.
LOCK_SECONDS = 0.5
# A supervisor without a process to supervise ends: its `make up` was killed.
IDLE_SECONDS = 60.0
# Often, since time may have passed while the machine slept.
RENEWAL_SECONDS = 60.0
REQUEST_SECONDS = 5.0
LARGEST_REQUEST = 4_000_000


class Supervisor:
    """Starts programs on request and restarts those that end, until SIGTERM; the processes outlive it."""

    def __init__(self, *, home: StackPaths, backoff: Backoff, log: Callable[[str], None]) -> None:
        self._home = home
        self._log = log
        self._clock = SystemClock()
        self._selector = selectors.DefaultSelector()
        self._table = Table(
            home=home, backoff=backoff, clock=self._clock, watch=self._watch, unwatch=self._unwatch, log=log
        )
        self._stopping = False
        self._lock_retry = 0.0
        self._renewal_at = 0.0

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT, or until the folder of the stack is removed."""
        with self._signals(), self._socket() as listener, (self._home.root / "lock").open("a") as lock:
            self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
            self._log(f"supervisor started, pid {os.getpid()}")
            while not self._stopping:
                events = self._selector.select(self._timeout())
                for key, _ in events:
                    key.data()
                self._renew_certificates(lock)
                self._restart_due(lock)
                if not events and not self._table:
                    self._log("nothing to supervise: the supervisor ends")
                    return
        self._log("supervisor stopped; the processes that it started continue to run")

    def _timeout(self) -> float | None:
        if not self._table:
            return IDLE_SECONDS
        due, now = self._table.next_start(), self._clock.monotonic()
        start = RENEWAL_SECONDS if due is None else max(due, self._lock_retry) - now
        return max(0.0, min(start, self._renewal_at - now))

    def _renew_certificates(self, lock: TextIO) -> None:
        """Keeps the certificates of a stack that runs for months valid; before a restart, so that no process starts with an expired one."""
        now = self._clock.monotonic()
        if now < self._renewal_at:
            return
        self._renewal_at = now + RENEWAL_SECONDS
        if not (self._home.tls / "ca" / "ca.crt").exists():
            return
        if not _locked(lock):
            self._renewal_at = now + LOCK_SECONDS
            return
        try:
            renewed = certs.renew_due(self._home.tls)
        except (OSError, ValueError) as error:
            self._log(f"certificates cannot be renewed: {error}")
        else:
            if renewed:
                self._log(f"certificates renewed: {', '.join(renewed)}")
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)

    def _restart_due(self, lock: TextIO) -> None:
        now, due = self._clock.monotonic(), self._table.next_start()
        if due is None or now < max(due, self._lock_retry):
            return
        if not self._home.root.exists():
            self._log(f"{self._home.root} was removed: nothing is restarted any more")
            self._stopping = True
            return
        if not _locked(lock):
            self._lock_retry = now + LOCK_SECONDS
            return
        try:
            self._table.start_due()
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)

    def _watch(self, process: Process, ended: Callable[[], None]) -> None:
        with suppress(KeyError):
            self._selector.unregister(process)
        self._selector.register(process, selectors.EVENT_READ, ended)

    def _unwatch(self, process: Process) -> None:
        self._selector.unregister(process)
        process.close()

    def _accept(self, listener: socket.socket) -> None:
        """One request and its response. A caller that sends nothing is dropped after REQUEST_SECONDS."""
        try:
            with listener.accept()[0] as connection:
                connection.settimeout(REQUEST_SECONDS)
                with connection.makefile("rb") as lines:
                    response = self._respond(json.loads(lines.readline(LARGEST_REQUEST)))
                connection.sendall(json.dumps(response).encode() + b"\n")
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            self._log(f"a request of the launcher failed: {error}")

    def _respond(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if request["command"] == "supervise":
                return {"record": asdict(self._table.supervise(_program(request["program"])))}
            self._table.release(request["names"])
            return {}
        except (KeyError, TypeError, StackError) as error:
            return {"error": str(error)}

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT wake the selector."""
        reader, writer = socket.socketpair()
        with reader, writer:
            writer.setblocking(False)
            signal.set_wakeup_fd(writer.fileno())
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._stop)
            self._selector.register(reader, selectors.EVENT_READ, lambda: None)
            yield

    def _stop(self, *_: object) -> None:
        self._stopping = True

    @contextmanager
    def _socket(self) -> Iterator[socket.socket]:
        path = self._home.supervisor_socket
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.setblocking(False)
            listener.listen(16)
            yield listener


def _locked(lock: TextIO) -> bool:
    """Takes the lock of the stack; False while a launcher holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _program(row: dict[str, Any]) -> Program:
    return Program(**{**row, "argv": tuple(row["argv"]), "log": Path(row["log"]), "leftovers": tuple(row["leftovers"])})
