"""One reused cgroup (version 2) a slot, where the mount is writable.

A slot supervisor sits in its slot's cgroup, so jobs are born there: nothing has to be moved and no race exists. To kill, it
steps out into ``home``, writes ``cgroup.kill`` (atomic, also against fork bombs) and steps back in. To freeze, it stays out.
"""

import contextlib
import os
from pathlib import Path


class SlotCgroup:
    """The cgroup of one slot and the home next to it."""

    def __init__(self, *, base: Path, slot: int) -> None:
        self.path = base / f"slot-{slot}"
        self._home = base / "home"
        self._outside = False

    def prepare(self) -> bool:
        """Make both groups and enter the slot's; False when this machine does not permit it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._home.mkdir(exist_ok=True)
            if not (self.path / "cgroup.kill").exists():
                return False
            # The one before may have died while its job was frozen.
            self._set_frozen(False)
            _enter(self.path)
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL to every process of the slot but the caller, which must be the slot's supervisor."""
        with contextlib.suppress(OSError):
            self._leave()
            try:
                (self.path / "cgroup.kill").write_text("1")
            finally:
                # A frozen process dies of SIGKILL before it runs on.
                self.thaw()

    def kill_from_outside(self) -> bool:
        """SIGKILL to every process of the slot, its supervisor as well; False when there is no such group, or the kernel refuses."""
        try:
            (self.path / "cgroup.kill").write_text("1")
        except OSError:
            return False
        return True

    def freeze(self) -> bool:
        """Stop every process of the slot but the caller; True when the kernel shows that all are stopped. Raises OSError."""
        self._leave()
        self._set_frozen(True)
        return self.is_frozen

    def thaw(self) -> None:
        """Let them run again; the caller is in the group again."""
        if self._outside:
            with contextlib.suppress(OSError):
                self._set_frozen(False)
                _enter(self.path)
                self._outside = False

    @property
    def is_frozen(self) -> bool:
        """Whether no process of the slot runs."""
        return b"frozen 1" in (self.path / "cgroup.events").read_bytes()

    def has(self, pid: int) -> bool:
        """Whether a process is in the slot's group, or in one below it."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            return False
        own = f"/{self.path.parent.name}/{self.path.name}"
        return any(line.startswith("0::") and f"{line}/".find(f"{own}/") >= 0 for line in lines)

    def _leave(self) -> None:
        if not self._outside:
            _enter(self._home)
            self._outside = True

    def _set_frozen(self, on: bool) -> None:
        (self.path / "cgroup.freeze").write_text("1" if on else "0")


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")


def find_base(
    name: str, mounts: Path = Path("/proc/mounts"), own: Path = Path("/proc/self/cgroup"), *, make: bool = True
) -> Path | None:
    """Where groups called `name` may be made: below this process's own group of a cgroup2 mount; None when impossible.

    Without `make` the place alone, whether it exists or not.
    """
    try:
        mount = mount_root(mounts)
        inside = next((line[3:] for line in own.read_text().splitlines() if line.startswith("0::")), None)
    except (OSError, IndexError):
        return None
    if mount is None or inside is None:
        return None
    base = mount / inside.lstrip("/") / name
    if not make:
        return base
    try:
        base.mkdir(exist_ok=True)
    except OSError:
        return None
    return base if os.access(base, os.W_OK) else None


def kill_all(base: Path) -> None:
    """SIGKILL to everything in all slots below `base`; for the groups of an incarnation that is over."""
    for group in _groups(base):
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")


def identity(group: Path) -> str:
    """Device and inode of a group; "" when it is not there."""
    try:
        found = group.stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def mount_root(mounts: Path = Path("/proc/mounts")) -> Path | None:
    """Where groups of version 2 are mounted; None without them. Another cgroup namespace shows another group there."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
        return next((Path(fields[1]) for fields in lines if fields[2] == "cgroup2"), None)
    except (OSError, IndexError):
        return None


def is_empty(base: Path, *, group_id: str, root_id: str, root: Path | None) -> bool:
    """True when the kernel shows that no process is left in `base` or below.

    A group that is missing is empty, but only for one who sees the same hierarchy: elsewhere its path means another group, or none.
    `group_id` and `root_id` are the identities of the group and of the `root` of the mount when it was made.
    """
    if not root_id or root is None or identity(root) != root_id:
        return False
    try:
        events = (base / "cgroup.events").read_text()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return identity(base) == group_id and "populated 0" in events


def remove(base: Path) -> None:
    """Remove the groups; quietly leaves what still has processes."""
    for group in [*_groups(base), base]:
        with contextlib.suppress(OSError):
            group.rmdir()


def _groups(base: Path) -> list[Path]:
    try:
        return [entry for entry in base.iterdir() if entry.is_dir()]
    except OSError:
        return []
