"""Which uids of the range belong to this executor: a uid has jobs of one slot on a machine, whatever executors share the range."""

import fcntl
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from toban_executor.decide.isolation import UidRange
from toban_executor.guard.process_tree import kill_all

FOLDERS = (Path("/run/toban-uids"), Path("/dev/shm/toban-uids"))
"""The first that can be made; a container may have a /run that it cannot write."""


def claim(uids: UidRange, count: int, folders: tuple[Path, ...] = FOLDERS) -> list[int]:
    """So many uids that no other executor has and no process runs as; they are held until this process and those it forks have ended.

    Raises RuntimeError when the range has not so many.
    """
    folder = _folder(folders)
    busy = set(_uids_of_processes())
    claimed: list[int] = []
    for uid in range(uids.first, uids.last + 1):
        if len(claimed) == count:
            break
        # The descriptor stays open: it is the claim.
        if uid not in busy and _lock(folder / str(uid)) is not None:
            claimed.append(uid)
    if len(claimed) < count:
        raise RuntimeError(
            f"SCHEDULER_JOB_UIDS={uids} has {len(claimed)} free uids, and {count} slots need one each; name a larger range that nothing else uses"
        )
    return claimed


def kill_left(uids: Collection[int], folders: tuple[Path, ...] = FOLDERS) -> bool:
    """SIGKILL to processes of those of these uids that no executor has claimed by now; whether there were some."""
    folder = _folder(folders) if uids else None
    found = False
    for uid in uids:
        assert folder is not None
        if (claimed := _lock(folder / str(uid))) is None:
            continue
        left = [pid for pid, owner in _owners() if owner == uid]
        kill_all(left)
        found |= bool(left)
        os.close(claimed)
    return found


def _folder(folders: tuple[Path, ...]) -> Path:
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        found = folder.lstat()
        if found.st_uid == os.geteuid() and not found.st_mode & 0o077 and os.access(folder, os.W_OK):
            return folder
    raise RuntimeError(
        f"none of {', '.join(map(str, folders))} can be made for the locks of uids; let the executor write one of them"
    )


def _lock(file: Path) -> int | None:
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _uids_of_processes() -> Iterator[int]:
    return (uid for _, uid in _owners())


def _owners() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 (names only)
        if entry.isdigit():
            try:
                # A process that is not dumpable has the owner root there, but its real uid in its status.
                status = Path(f"/proc/{entry}/status").read_text()
            except OSError:
                continue
            line = next(line for line in status.splitlines() if line.startswith("Uid:"))
            yield int(entry), int(line.split()[1])
