"""Starts child processes and notices the end of processes without polling: a pidfd becomes readable at that moment."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from toban_stack.errors import tail
from toban_stack.processes import DEFAULTED, ProcessRecord, Program, alive, record_of
from toban_stack.supervisor.policy import Exit

EXIT_NOT_STARTED = 127


class Process:
    """A running process, child of this one or not. `fileno` becomes readable when it ends."""

    def __init__(self, record: ProcessRecord) -> None:
        """Raises ProcessLookupError when it does not run."""
        self.record = record
        self._handle = os.pidfd_open(record.pid)

    def fileno(self) -> int:
        """The pidfd."""
        return self._handle

    def poll(self) -> Exit | None:
        """How it ended; None while it runs. A child is reaped: the next call has no exit code."""
        try:
            status = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return None if alive(self.record) else Exit()
        if status is None:
            return None
        return Exit(code=status.si_status) if status.si_code == os.CLD_EXITED else Exit(signal=status.si_status)

    def close(self) -> None:
        """Closes the pidfd; the process is not affected."""
        os.close(self._handle)


def start(program: Program, store: Callable[[ProcessRecord], None]) -> Process:
    """Starts `program` in a session of its own. It begins only after `store` has returned.

    So a supervisor that is killed at any moment leaves no process without a record. Raises OSError, and what `store` raises.
    """
    program.remove_leftovers()
    gate, opener = os.pipe()
    with os.fdopen(gate), os.fdopen(opener, "wb", buffering=0) as go, os.fdopen(program.open_log(), "ab") as log:
        pid = os.fork()
        if pid == 0:
            os.close(opener)
            _become(program, log=log.fileno(), gate=gate)
        process = None
        try:
            process = Process(record_of(program, pid))
            store(process.record)
            go.write(b"!")
            return process
        except BaseException:
            go.close()
            os.waitpid(pid, 0)
            if process is not None:
                process.close()
            raise


def _become(program: Program, *, log: int, gate: int) -> NoReturn:
    """In the child: waits for the gate, then executes the program; ends when the parent has ended or failed."""
    try:
        os.setsid()
        for number in DEFAULTED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if os.read(gate, 1):
            os.execve(program.argv[0], program.argv, dict(program.environment))
    except (OSError, ValueError) as error:
        os.write(2, f"{program.argv[0]} cannot be executed: {error}\n".encode())
    finally:
        os._exit(EXIT_NOT_STARTED)


def last_line(log: Path, *, longest: int = 300) -> str:
    """The last line of a log that is not blank, without control characters."""
    lines = [line.strip() for line in tail(log) if line.strip()]
    return "".join(char if char.isprintable() else " " for char in lines[-1])[:longest] if lines else ""
