"""Where an attempt finds its secrets: files in memory, readable by the job's user alone, gone with the attempt."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from toban_domain.secret import SECRETS_FOLDER, SecretFile
from toban_executor.guard.spawn import SpawnError

MEMORY = ("tmpfs", "ramfs")
_MOUNTS = Path("/proc/self/mounts")


class SecretFiles:
    """One slot's folder (0700) with a file (0400) for each secret. It exists only while an attempt has secrets. A group `gid` reads them, too."""

    def __init__(self, folder: Path, *, mounts: Path = _MOUNTS, gid: int = 0) -> None:
        self._folder = folder
        self._gid = gid
        self._mounts = mounts
        self._used = False
        # Of a supervisor that was killed.
        shutil.rmtree(folder, ignore_errors=True)

    def write(self, secrets: Sequence[SecretFile]) -> None:
        """Write them for the first step. Raises SpawnError when that is not possible, also when the folder would be on a disk."""
        if not secrets:
            return
        if not in_memory(self._folder.parent, self._mounts):
            raise SpawnError(
                f"secrets are written to memory only, and '{self._folder.parent}' is no tmpfs; "
                "mount a tmpfs that this executor may write at /dev/shm"
            )
        self._used = True
        try:
            self._folder.mkdir(mode=0o700)
            if self._gid:
                os.chown(self._folder, -1, self._gid)
                self._folder.chmod(0o750)
            for secret in secrets:
                self._write(secret)
        except OSError as error:
            raise SpawnError(f"folder of secrets '{self._folder}': {os.strerror(error.errno or 0)}") from None

    def environment(self, secrets: Sequence[SecretFile], *, folder: str = "") -> Mapping[str, str]:
        """The variables by which the job finds them: paths, never values. `folder` is how it sees the folder."""
        if not secrets:
            return {}
        folder = folder or str(self._folder)
        paths = {secret.file_env: f"{folder}/{secret.file}" for secret in secrets if secret.file_env}
        return {**paths, SECRETS_FOLDER: folder}

    def clear(self) -> None:
        """Remove them; the attempt's processes are gone."""
        if self._used:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._used = False

    def _write(self, secret: SecretFile) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._folder / secret.file, flags, 0o400), "wb") as file:
            if self._gid:
                os.fchown(file.fileno(), -1, self._gid)
                os.fchmod(file.fileno(), 0o440)
            file.write(secret.value)


def in_memory(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether the file system of `folder` is kept in memory: that of the longest mount point above it, the last one mounted there."""
    real, best, kind = folder.resolve(), Path(), ""
    for line in mounts.read_text(errors="replace").splitlines():
        _, point, file_system, *_ = line.split(" ")
        path = Path(point.replace("\\040", " "))
        if (real == path or path in real.parents) and len(path.parts) >= len(best.parts):
            best, kind = path, file_system
    return kind in MEMORY
