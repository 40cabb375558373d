"""Kills and restarts the processes of a stack one after the other, in an order determined by a seed."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from toban_stack.processes import ProcessRecord, alive, descendants, send
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.stack_fixtures import sql

RECOVERY_SECONDS = 30.0
KINDS = ("executor", "log-archiver", "postgres", "postgres backend", "s3")
# Expires the archive lease of a killed log-archiver at once; otherwise the others would wait 30 seconds.
_EXPIRE_ARCHIVE_LEASE = """
UPDATE logs.archive_lease SET beat_at = beat_at - interval '1 minute' WHERE held AND holder LIKE '%%(process ' || %(pid)s::text || ')'
"""


def sql_with_retries(stack: Stack, statement: str, **params: Any) -> list[dict[str, Any]]:
    """As `sql`, retried while PostgreSQL recovers from a fault. The statement must be idempotent."""
    rows: list[list[dict[str, Any]]] = []

    def answered() -> bool:
        with suppress(psycopg.OperationalError):
            rows.append(sql(stack, statement, **params))
        return bool(rows)

    if not wait_until(answered, RECOVERY_SECONDS):
        raise TimeoutError(f"PostgreSQL did not recover within {RECOVERY_SECONDS:g} s")
    return rows[0]


class Faults:
    """A thread that injects faults: rounds of all KINDS, each in a random order. `done` counts the faults.

    An error of the thread is raised by `wait` and `stop`.
    """

    def __init__(self, stack: Stack, *, seed: int, rounds: int, pause: tuple[float, float] = (0.3, 2.0)) -> None:
        self.done: Counter[str] = Counter()
        self._stack = stack
        self._random = random.Random(seed)
        self._rounds = rounds
        self._pause = pause
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="faults")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def wait(self, *, seconds: float) -> None:
        """Waits for the end of all rounds."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"faults have not ended within {seconds:g} s: {dict(self.done)}")
        self._check()

    def stop(self) -> None:
        """Stops after the current fault, with every process running."""
        self._stopping.set()
        self._thread.join()
        self._check()

    @property
    def part(self) -> float:
        """Completed fraction: 0 to 1."""
        return self.done.total() / (self._rounds * len(KINDS))

    @property
    def failed(self) -> bool:
        """Whether the thread ended with an error."""
        return self._error is not None

    def _run(self) -> None:
        try:
            for _ in range(self._rounds):
                for kind in self._random.sample(KINDS, len(KINDS)):
                    if self._stopping.wait(self._random.uniform(*self._pause)):
                        return
                    self._do(kind)
                    self.done[kind] += 1
        except BaseException as error:  # raised by `wait` and `stop`
            self._error = error

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _do(self, kind: str) -> None:
        if kind == "postgres backend":
            self._kill_backend()
        elif kind == "postgres":
            self._kill(kind, signal.SIGQUIT)
        elif kind == "s3":
            self._kill(kind, signal.SIGKILL)
        else:
            names = sorted(name for name, one in self._stack.processes().items() if one.role == kind)
            self._kill(self._random.choice(names), signal.SIGKILL)

    def _kill(self, name: str, signum: int) -> None:
        """Kills the process, waits a moment, starts it again."""
        record = self._stack.processes()[name]
        self._stack.kill(name, signum)
        if not wait_until(lambda: not alive(record), 20):
            raise TimeoutError(f"{name} did not end")
        if record.role == "log-archiver":
            sql_with_retries(self._stack, _EXPIRE_ARCHIVE_LEASE, pid=record.pid)
        self._stopping.wait(self._random.uniform(0.0, 1.0))
        self._stack.start(name)

    def _kill_backend(self) -> None:
        """Kills one backend of a client: PostgreSQL terminates all others and recovers."""
        postmaster = self._stack.processes()["postgres"]
        backends: list[ProcessRecord] = []

        def found() -> bool:
            backends[:] = [one for one in descendants([postmaster]) if b"127.0.0.1" in _title(one.pid)]
            return bool(backends)

        if not wait_until(found, RECOVERY_SECONDS):
            raise TimeoutError("PostgreSQL has no client")
        send(self._random.choice(sorted(backends, key=lambda one: one.pid)), signal.SIGKILL)


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
