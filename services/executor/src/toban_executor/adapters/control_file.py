"""The file by which a process on the same machine finds a serving executor in its state directory, to ask it to drain."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.adapters.state_dir import CONTROL_FILE, executor_pid
from toban_observability.logs import get_logger
from toban_runtime.lifecycle import write_ready_file

DRAIN_SIGNAL = signal.SIGUSR1

_log = get_logger(__name__)


@contextlib.contextmanager
def published(state_dir: Path, *, admin_port: int, on_drain: Callable[[], None]) -> Iterator[None]:
    """While this lasts, `python -m toban_executor drain` finds this process; `on_drain` is called when it asks."""
    # Kept until the event loop closes: without a handler the signal would end the process.
    asyncio.get_running_loop().add_signal_handler(DRAIN_SIGNAL, on_drain)
    file = state_dir / CONTROL_FILE
    try:
        write_ready_file(file, admin_port=admin_port)
    except OSError as error:
        _log.warning("cannot write the control file; `drain` will not find this executor", error=str(error))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink()


def request_drain(state_dir: Path) -> int:
    """Ask the executor that serves with this state directory to take no new work; returns its admin port.

    Raises TobanError RESOURCE_INVALID_STATE when there is none, PERMISSION_DENIED when it belongs to another user.
    """
    try:
        serving = json.loads((state_dir / CONTROL_FILE).read_text())
        _signal(serving["pid"], state_dir)
    except PermissionError as error:
        raise TobanError(
            ErrorCode.PERMISSION_DENIED, f"{state_dir}: {error.strerror}; ask as the user of the executor"
        ) from None
    except (OSError, ValueError, LookupError, TypeError):
        raise TobanError(
            ErrorCode.RESOURCE_INVALID_STATE,
            f"no executor serves with the state directory {state_dir}; SCHEDULER_STATE_DIR names it",
        ) from None
    return int(serving["admin_port"])


def _signal(pid: int, state_dir: Path) -> None:
    """A pid from before a crash may belong to another process by now, but only the executor has the directory's lock.

    Raises OSError when this process has not.
    """
    process = os.pidfd_open(pid)
    try:
        if executor_pid(state_dir) != pid:
            raise ProcessLookupError
        signal.pidfd_send_signal(process, DRAIN_SIGNAL)
    finally:
        os.close(process)
