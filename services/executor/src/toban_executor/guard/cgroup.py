"""One reused cgroup (version 2) a slot, where the mount is writable.

A slot supervisor sits in its slot's cgroup, so jobs are born there: nothing has to be moved and no race exists. To kill, it
steps out into ``home``, writes ``cgroup.kill`` (atomic, also against fork bombs) and steps back in.
"""

import contextlib
import os
from pathlib import Path


class SlotCgroup:
    """The cgroup of one slot and the home next to it."""

    def __init__(self, *, base: Path, slot: int) -> None:
        self.path = base / f"slot-{slot}"
        self._home = base / "home"

    def prepare(self) -> bool:
        """Make both groups and enter the slot's; False when this machine does not permit it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._home.mkdir(exist_ok=True)
            if not (self.path / "cgroup.kill").exists():
                return False
            _enter(self.path)
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL to every process of the slot but the caller, which must be the slot's supervisor."""
        with contextlib.suppress(OSError):
            _enter(self._home)
            try:
                (self.path / "cgroup.kill").write_text("1")
            finally:
                _enter(self.path)


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")


def find_base(name: str, mounts: Path = Path("/proc/mounts"), own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """Where groups called `name` may be made: below this process's own group of a cgroup2 mount; None when impossible."""
    try:
        mount = mount_root(mounts)
        inside = next((line[3:] for line in own.read_text().splitlines() if line.startswith("0::")), None)
    except (OSError, IndexError):
        return None
    if mount is None or inside is None:
        return None
    base = mount / inside.lstrip("/") / name
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
