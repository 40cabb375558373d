"""Where an attempt finds its payload, and its working directory when the definition names none.

In class `isolated` both folders belong to the group of the slot's uid and are sticky, so that a job can write to them and change neither them nor the
files of its guard. Both belong to the slot and are empty before and after each attempt. The payload goes to memory where there is a tmpfs: it may
hold what should not reach a disk, and two writes of a disk's directory a run are noticeable at a thousand runs a second.
"""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from toban_domain.secret import SecretFile
from toban_executor.guard.clock import wall
from toban_executor.guard.secret_files import SecretFiles
from toban_executor.guard.spawn import SpawnError

_MEMORY = Path("/dev/shm")
# File systems keep times in steps of two seconds at most.
_SETTLED_SECONDS = 3.0


def payload_home(incarnation: str) -> Path:
    """The directory of payload files in memory for one incarnation; it may not exist."""
    return _MEMORY / f"toban-{incarnation}"


def make_payload_home(incarnation: str, fallback: Path) -> Path:
    """Make the directory for payload files (0700), in memory if possible, else `fallback`."""
    home = payload_home(incarnation)
    try:
        home.mkdir(mode=0o700)
    except OSError:
        return fallback
    return home


class SlotPaths(NamedTuple):
    """Paths of a slot, as processes of the machine or those of its sandbox see them."""

    directory: str
    payload: str
    socket: str
    secrets: str


class WorkDir:
    """One slot's directory (0700) and payload file (0600), and the place of its socket.

    A sandbox has both folders mounted, so they are `kept` when they are emptied, and jobs may write to the folder of the payload, too. The `gid` is
    that of the sandbox (0 = the sandbox has the executor's uid); `inside` is how it sees the places, and `shown` are folders in
    its directory at which other folders are mounted.
    """

    def __init__(
        self,
        *,
        directory: Path,
        payload: Path,
        socket: Path,
        kept: bool = False,
        gid: int = 0,
        inside: SlotPaths | None = None,
        shown: Sequence[str] = (),
    ) -> None:
        self._kept = kept
        self.directory = str(directory)
        self.payload = str(payload)
        self.socket = socket
        self.gid = gid
        secrets = payload.with_suffix(".secrets")
        self._places = SlotPaths(self.directory, self.payload, str(socket), str(secrets))
        self._inside = inside or self._places
        self._secrets = SecretFiles(secrets, gid=gid)
        self._memory = str(payload.parent) if kept else ""
        # All else in the folder of the payload is of jobs, once payload and secrets are removed: also what has the name of their folder.
        self._own_names = {socket.name}
        self._shown_names = {place.partition("/")[0] for place in shown}
        # Device, inode and time of the last change of the directory when it was empty. Each change sets that time, and no call sets it back.
        self._empty: tuple[int, int, int] | None = None
        # The clock had gone on when the directory was looked at: a change after that look has a later time.
        self._settled = False
        if kept:
            for folder in (self.directory, self._memory):
                self._make_kept(folder)
                self._remove_content(folder)
            for place in map(directory.joinpath, shown):
                place.mkdir(parents=True, exist_ok=True)
                for above in (place, *place.parents[: len(place.relative_to(directory).parts) - 1]):
                    above.chmod(0o755)
        else:
            shutil.rmtree(directory, ignore_errors=True)

    def places(self, *, inside: bool) -> SlotPaths:
        """How a step finds them."""
        return self._inside if inside else self._places

    def prepare(self, payload: str, secrets: Sequence[SecretFile] = ()) -> None:
        """Write the files for the first step of an attempt. Raises SpawnError when the disk does not let us."""
        try:
            self._make_directory()
            self._write(payload or "{}")
        except OSError as error:
            raise SpawnError(f"work directory '{self.directory}': {os.strerror(error.errno or 0)}") from None
        self._secrets.write(secrets)

    def environment(self, secrets: Sequence[SecretFile], *, inside: bool = False) -> Mapping[str, str]:
        """The variables by which a job finds its secrets."""
        return self._secrets.environment(secrets, folder=self.places(inside=inside).secrets)

    def clear(self) -> None:
        """Remove the payload file, the secrets, and whatever the attempt left in its directory."""
        self._secrets.clear()
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(self.payload)  # noqa: PTH108 (hot path)
        if self._kept:
            self._reopen(self._memory)
            self._remove_content(self._memory)
        if self._is_used():
            self._empty = None
            if self._kept:
                self._reopen(self.directory)
                self._remove_content(self.directory)
                return
            remove_tree(self.directory)
            # A link in its place, which rmtree leaves.
            with contextlib.suppress(OSError):
                os.unlink(self.directory)  # noqa: PTH108 (hot path)

    def _make_kept(self, directory: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)  # noqa: PTH102 (str, as elsewhere here)
        if self.gid:
            os.chown(directory, -1, self.gid)
        os.chmod(directory, 0o1770 if self.gid else 0o700)  # noqa: PTH101 (str, as elsewhere here)

    def _reopen(self, directory: str) -> None:
        """With the executor's uid a job may have closed it, also to the next job."""
        if not self.gid:
            os.chmod(directory, 0o700)  # noqa: PTH101 (str, as elsewhere here)

    def _remove_content(self, directory: str) -> None:
        """What jobs have left there."""
        own = self._own_names if directory == self._memory else self._shown_names
        for name in set(os.listdir(directory)) - own:  # noqa: PTH208 (hot path)
            path = f"{directory}/{name}"
            try:
                os.unlink(path)  # noqa: PTH108 (hot path)
            except OSError:
                remove_tree(path)

    def _make_directory(self) -> None:
        if self._empty is not None and self._empty == _identity(self.directory):
            return
        if not self._kept:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.directory, 0o700)  # noqa: PTH102 (hot path)
        self._empty, self._settled = _identity(self.directory), False

    def _is_used(self) -> bool:
        """Whether the attempt has left something in its directory, or has changed it. One call of the kernel for a job that did not use it."""
        if self._empty is None or self._empty != _identity(self.directory):
            return True
        if self._settled:
            return False
        settled = wall() - self._empty[2] / 1e9 > _SETTLED_SECONDS
        try:
            used = bool(set(os.listdir(self.directory)) - self._shown_names)  # noqa: PTH208 (hot path)
        except OSError:
            return True
        self._settled = settled and not used
        return used

    def _write(self, payload: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.payload, flags, 0o600)
        try:
            if self.gid:
                os.fchown(fd, -1, self.gid)
                os.fchmod(fd, 0o640)
            data = payload.encode()
            if os.write(fd, data) < len(data):
                # A disk that becomes full takes the beginning; a job must not run with half of its payload.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)


def remove_tree(path: str) -> None:
    """Remove it as far as possible.

    Jobs make trees that are deeper than Python's own function can go, and close folders in them, which only root removes as they are.
    """
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    # Both programs follow no link below the path; one in its place is left to the caller.
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 (str, as elsewhere here)
        for program in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*program, "--", path], check=False, stderr=subprocess.DEVNULL)


def _identity(directory: str) -> tuple[int, int, int] | None:
    """None when it is not there."""
    try:
        found = os.lstat(directory)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
