"""Which uids of the range belong to this executor, and what they leave behind.

A uid has jobs of one slot on a machine, or in a container, whatever executors share the range.
"""

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from toban_executor.decide.isolation import UidRange
from toban_executor.guard import kernel
from toban_executor.guard.process_tree import kill_all, real_uids
from toban_executor.guard.work_dir import remove_tree

FOLDERS = (Path("/run/toban-uids"), Path("/dev/shm/toban-uids"))
"""The first that can be made; a container may have a /run that it cannot write."""

_OPEN_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
"""In which every user may make files."""


class Claims(NamedTuple):
    """A uid for each slot, and the descriptors that hold them: the last process that has these open gives the uids back."""

    uids: tuple[int, ...] = ()
    locks: tuple[int, ...] = ()

    def close(self) -> None:
        """In this process."""
        for lock in self.locks:
            os.close(lock)


def claim(uids: UidRange, count: int, folders: tuple[Path, ...] = FOLDERS) -> Claims:
    """So many uids that no other executor has and no process runs as. Raises RuntimeError when the range has not so many."""
    folder = _folder(folders)
    busy = {uid for _, uid in real_uids()}
    claimed: dict[int, int] = {}
    for uid in range(uids.first, uids.last + 1):
        if len(claimed) == count:
            break
        if uid not in busy and (lock := _lock(folder / str(uid))) is not None:
            claimed[uid] = lock
    claims = Claims(tuple(claimed), tuple(claimed.values()))
    if len(claimed) < count:
        claims.close()
        raise RuntimeError(
            f"SCHEDULER_JOB_UIDS={uids} has {len(claimed)} free uids, and {count} slots need one each; name a larger range that nothing else uses"
        )
    return claims


def kill_left(uids: Collection[int], folders: tuple[Path, ...] = FOLDERS) -> bool:
    """SIGKILL to processes of those of these uids that no executor has claimed by now; whether there were some."""
    if not uids:
        return False
    folder = _folder(folders)
    locks = {uid: lock for uid in uids if (lock := _lock(folder / str(uid))) is not None}
    left = [pid for pid, uid in real_uids() if uid in locks]
    kill_all(left)
    for lock in locks.values():
        os.close(lock)
    return bool(left)


def remove_left(uid: int) -> None:
    """System V IPC and files in open folders of a uid that has no process any more, as far as possible.

    With the rights of the uid: without CAP_SYS_ADMIN only owners remove IPC, and a folder that another job puts in the place of one is not in reach.
    """
    ipc, files = list(_ipc_of(uid)), list(_files_of(uid))
    if not ipc and not files:
        return
    own = os.geteuid()
    try:
        os.seteuid(uid)
    except OSError:
        return
    try:
        for kind, number in ipc:
            with contextlib.suppress(OSError):
                kernel.remove_ipc(kind, number)
        for path in files:
            with contextlib.suppress(OSError):
                if not os.path.isdir(path) or os.path.islink(path):  # noqa: PTH112, PTH114 (str, as in work_dir)
                    os.unlink(path)  # noqa: PTH108 (str, as in work_dir)
                else:
                    # It may find no process to help it, while other slots have them all.
                    remove_tree(path)
    finally:
        os.seteuid(own)


def _ipc_of(uid: int) -> Iterator[tuple[str, int]]:
    """Kind and number. An owner may name another one; the creator stays, and may use it, too."""
    for kind in kernel.IPC_KINDS:
        with contextlib.suppress(OSError):
            titles, *lines = (line.split() for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines())
            for line in lines:
                fields = dict(zip(titles, line, strict=True))
                if str(uid) in (fields["uid"], fields["cuid"]):
                    yield kind, int(line[1])


def _files_of(uid: int) -> Iterator[str]:
    for folder in _OPEN_FOLDERS:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == uid:
                        yield entry.path


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
