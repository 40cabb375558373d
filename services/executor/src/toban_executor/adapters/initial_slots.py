"""How many slots an incarnation starts with. They are made before a coordinator can be asked, so they can be too many for this machine."""

from collections.abc import Callable
from pathlib import Path

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import SETTINGS
from toban_executor.adapters.state_dir import clear_saved_slots, saved_slots
from toban_executor.guard.launch import GuardSet
from toban_observability.logs import get_logger
from toban_runtime.open_files import open_files

DEFAULT = int(SETTINGS["max_jobs_per_worker"].default)
RESERVED_FILES = 128
"""Files for everything but the slots: the journal, connections, the admin port."""
FILES_A_SLOT = 2
"""While the guards start, both ends of a slot's socket are open here; half of them serve connections later."""
_log = get_logger(__name__)
Start = Callable[[int], GuardSet]


def start_slots(*, own: int | None, state_dir: Path, start: Start) -> tuple[GuardSet, int]:
    """The guards, and the most slots that the setting may give to this incarnation.

    `own` (SCHEDULER_SLOTS) counts as it is. Else as many as the setting gave last; when these cannot be started, the saved number is cleared and
    the default is used, with which it can register and get another number. Raises TobanError when there are no guards.
    """
    most = most_slots()
    if own:
        if own > most:
            raise TobanError(
                ErrorCode.CONFIG_INVALID,
                f"SCHEDULER_SLOTS is {own}; {open_files()} open files allow {most}: lower it, or raise the limit (LimitNOFILE, ulimit -Hn)",
            )
        return _started(own, start), own
    first = min(saved_slots(state_dir) or DEFAULT, most)
    try:
        return _started(first, start), most
    except TobanError as error:
        clear_saved_slots(state_dir)
        fewer = min(DEFAULT, most)
        if first <= fewer:
            raise
        _log.error(
            "max_jobs_per_worker is more than this machine can start; lower it, or raise the limits of open files and processes",
            slots=first,
            starts_with=fewer,
            error=error.message,
        )
    return _started(fewer, start), fewer


def _started(slots: int, start: Start) -> GuardSet:
    try:
        return start(slots)
    except (OSError, RuntimeError) as error:
        raise TobanError(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"the guards of {slots} slots do not start ({error}); check the limits of open files, processes and memory",
        ) from error


def most_slots() -> int:
    """How many slots the open files of this process allow; one at least."""
    return max(1, (open_files() - RESERVED_FILES) // FILES_A_SLOT)
