"""The executor's own directory and its exclusive lock."""

import contextlib
import fcntl
import os
from pathlib import Path

from toban_domain.errors import ErrorCode, TobanError

LOCK = "lock"
CONTROL_FILE = "serving.json"
_SLOTS = "max-jobs"


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
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Of a process that was killed; in a container this one often has its pid.
            (self.path / CONTROL_FILE).unlink(missing_ok=True)
        except BlockingIOError:
            raise _invalid(f"{self.path} belongs to a running executor; give each its own folder") from None


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
