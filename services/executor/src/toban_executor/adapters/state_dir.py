"""The executor's own directory: its exclusive lock, which a witness gives up for an executor, and its small files."""

import contextlib
import fcntl
import os
import secrets
import signal
import struct
from pathlib import Path

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.guard.clock import boottime, pause

LOCK = "lock"
CONTROL_FILE = "serving.json"
SECRET = "instance-secret"
_SLOTS = "max-jobs"
_SECRET_BYTES = 32
_EXECUTOR_BYTE, _WITNESS_BYTE = 0, 1
"""Each has a record lock on its byte of the lock file: an executor that waits finds a witness by it, and `drain` the executor."""
_RECORD = struct.Struct("hhqqi4x")
"""struct flock: type, whence, start, length, pid."""
_LOCK_SECONDS = 0.2
"""How long a start waits for a process that is just ending."""
_WITNESS_SECONDS = 5.0
"""How long a start waits for a witness that was told to end."""


class StateDir:
    """Held until the process ends or executes another program: no second executor can use it meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1

    def lock(self) -> None:
        """Make the directory (0700) and lock it. Raises TobanError CONFIG_INVALID when another process has it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _invalid(f"cannot use {self.path} ({error.strerror}); name a writable folder") from None
        if not self._acquire():
            raise _invalid(f"{self.path} belongs to a running executor; give each its own folder")
        fcntl.lockf(self._lock, fcntl.LOCK_EX, 1, _EXECUTOR_BYTE)
        # Of a process that was killed; in a container this one often has its pid.
        (self.path / CONTROL_FILE).unlink(missing_ok=True)

    def lock_as_witness(self) -> bool:
        """Lock the directory until this process ends or an executor starts, which ends this process. False when another process has it.

        Raises OSError.
        """
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            # First, so that an executor that finds the directory locked also finds the witness.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _WITNESS_BYTE)
        except BlockingIOError:
            return False
        return _flock(self._lock)

    def _acquire(self) -> bool:
        """An executor goes before a witness: what that has not finished, this one does."""
        until = boottime() + _LOCK_SECONDS
        told = 0
        while not _flock(self._lock):
            pid = _holder(self._lock, _WITNESS_BYTE)
            if pid not in (0, told):
                _terminate_witness(pid, self._lock)
                told, until = pid, boottime() + _WITNESS_SECONDS
            if boottime() > until:
                return False
            pause(0.01)
        return True


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def executor_pid(path: Path) -> int:
    """The executor that has this directory; 0 for none, or one of another pid namespace. Raises OSError."""
    fd = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _holder(fd, _EXECUTOR_BYTE)
    finally:
        os.close(fd)


def _holder(fd: int, byte: int) -> int:
    """The process that has locked this byte; 0 for none, or one of another pid namespace."""
    asked = _RECORD.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind, _, _, _, pid = _RECORD.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else max(0, pid)


def _terminate_witness(pid: int, fd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            # The number may belong to another process by now.
            if _holder(fd, _WITNESS_BYTE) == pid:
                signal.pidfd_send_signal(process, signal.SIGTERM)
        finally:
            os.close(process)


def instance_secret(path: Path, *, fresh: bool = False) -> str:
    """The secret by which a later process proves that it has this directory (0600); made when there is none, and with `fresh`.

    Raises TobanError UNAVAILABLE when the disk refuses.
    """
    file = path / SECRET
    try:
        if not fresh and file.exists() and len(known := file.read_text(encoding="ascii")) == 2 * _SECRET_BYTES:
            return known
        made = secrets.token_hex(_SECRET_BYTES)
        new = path / f"{SECRET}.new"
        new.unlink(missing_ok=True)
        with open(new, "x", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
            out.write(made)
            out.flush()
            os.fsync(out.fileno())
        new.replace(file)
    except (OSError, ValueError) as error:
        raise TobanError(
            ErrorCode.UNAVAILABLE, f"{file}: {error}; free its disk, and let the executor's user read and write it"
        ) from None
    return made


def saved_slots(path: Path) -> int | None:
    """How many slots the setting gave this executor last; None when it never did."""
    try:
        text = (path / _SLOTS).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdecimal() and int(text) > 0 else None


def save_slots(path: Path, slots: int) -> None:
    """Save the number for the next start: slots are made before a coordinator can be asked. Raises OSError."""
    new = path / f"{_SLOTS}.new"
    new.write_text(f"{slots}\n", encoding="ascii")
    new.replace(path / _SLOTS)


def clear_saved_slots(path: Path) -> None:
    """The next start begins with the default number."""
    with contextlib.suppress(OSError):
        (path / _SLOTS).unlink(missing_ok=True)


def _invalid(message: str) -> TobanError:
    return TobanError(ErrorCode.CONFIG_INVALID, f"SCHEDULER_STATE_DIR: {message}")
