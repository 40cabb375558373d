"""One reused cgroup (version 2) a slot, where the mount is writable.

A slot supervisor sits in its slot's cgroup, so jobs are born there: nothing has to be moved and no race exists. To kill, it
steps out into ``home``, writes ``cgroup.kill`` (atomic, also against fork bombs) and steps back in. To freeze, it stays out.
"""

import contextlib
import errno
import os
from pathlib import Path

from toban_executor.guard.clock import boottime, pause
from toban_executor.guard.spawn import SpawnError

_CONTAINERS = "-containers"


class ContainerGroup:
    """The cgroup of the containers of one slot, next to that of its processes; in it each step has one of its own, named token-step.

    The step's group is closed (frozen) at its end and stays so: a container that the engine starts late does not run, not beside the next
    step either. The program of the step, else the executor, removes the group after the engine has removed the container.
    The slot's group freezes and kills all of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Of the step that may have a container, or had the last one.
        self._step: Path | None = None
        self._is_open = False

    def open(self, name: str) -> Path:
        """The group for the container of a step, which may run. Raises OSError."""
        self.path.mkdir(exist_ok=True)
        # What has come late into the groups of earlier steps.
        self.kill()
        self._step = self.path / name
        self._step.mkdir()
        self._is_open = True
        self.set_frozen(False)
        return self._step

    def is_over(self) -> bool:
        """The step is over: whether nothing of its container is left. What the engine has begun to start comes frozen into the group."""
        if self._step is None:
            return True
        try:
            if self._is_open:
                _freeze(self._step, True)
                self.set_frozen(True)
                self._is_open = False
            if b"populated 1" in _events(self._step):
                return False
        except OSError:
            return False
        self._step = None
        return True

    def kill(self) -> None:
        """SIGKILL to every process of every container. Frozen first: one that the engine is about to start does not run."""
        self._is_open = False
        with contextlib.suppress(OSError):
            self.set_frozen(True)
            for step in _groups(self.path):
                _freeze(step, True)
            (self.path / "cgroup.kill").write_text("1")

    def set_frozen(self, on: bool) -> None:
        """Stop the containers, or let those go on whose step is not over."""
        _freeze(self.path, on)

    @property
    def is_frozen(self) -> bool:
        """Whether `set_frozen` is in force."""
        try:
            return (self.path / "cgroup.freeze").read_bytes().strip() == b"1"
        except OSError:
            return False

    def freeze(self, seconds: float) -> bool:
        """Stop the containers; whether none of them runs within so many seconds. Raises OSError."""
        self.set_frozen(True)
        end = boottime() + seconds
        while not self.is_still:
            if boottime() > end:
                return False
            pause(0.001)
        return True

    def thaw(self) -> None:
        """Let them go on, unless the step is over."""
        if self._is_open:
            self.set_frozen(False)

    @property
    def is_populated(self) -> bool:
        """Whether a process of a container is left."""
        return b"populated 1" in _events(self.path)

    @property
    def is_still(self) -> bool:
        """Whether no process of a container runs: none is left, or all are frozen."""
        events = _events(self.path)
        return not events or b"populated 0" in events or b"frozen 1" in events


def _freeze(group: Path, on: bool) -> None:
    with contextlib.suppress(FileNotFoundError):
        (group / "cgroup.freeze").write_text("1" if on else "0")


def _events(group: Path) -> bytes:
    """Empty without the group: no step has had a container, or it was removed with its container. Raises OSError."""
    try:
        return (group / "cgroup.events").read_bytes()
    except FileNotFoundError:
        return b""


class SlotCgroup:
    """The cgroup of one slot, the home next to it, and that of its containers."""

    def __init__(self, *, base: Path, slot: int) -> None:
        self.path = base / f"slot-{slot}"
        self.containers = ContainerGroup(base / f"slot-{slot}{_CONTAINERS}")
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
        self.containers.kill()
        with contextlib.suppress(OSError):
            self._leave()
            try:
                (self.path / "cgroup.kill").write_text("1")
            finally:
                # A frozen process dies of SIGKILL before it runs on.
                self.thaw()

    def kill_from_outside(self) -> bool:
        """SIGKILL to every process of the slot, its supervisor as well; False when there is no such group, or the kernel refuses."""
        self.containers.kill()
        try:
            (self.path / "cgroup.kill").write_text("1")
        except OSError:
            return False
        return True

    def freeze(self) -> bool:
        """Stop every process of the slot but the caller; True when the kernel shows that all are stopped. Raises OSError."""
        self.containers.set_frozen(True)
        self._leave()
        self._set_frozen(True)
        return self.is_frozen

    def thaw(self) -> None:
        """Let them run again; the caller is in the group again."""
        with contextlib.suppress(OSError):
            self.containers.thaw()
        if self._outside:
            with contextlib.suppress(OSError):
                self._set_frozen(False)
                _enter(self.path)
                self._outside = False

    @property
    def is_frozen(self) -> bool:
        """Whether no process of the slot runs."""
        return b"frozen 1" in (self.path / "cgroup.events").read_bytes() and self.containers.is_still

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


def container_group(group: SlotCgroup | None, name: str) -> str:
    """The cgroup for the container of the step `name` of the slot, ready for it. Raises SpawnError."""
    if group is None:
        raise SpawnError(
            "container steps need a cgroup of version 2 that the executor may write to (docs/container-steps.md)"
        )
    try:
        return str(group.containers.open(name))
    except OSError as error:
        raise SpawnError(f"cgroup '{group.containers.path}': {os.strerror(error.errno or 0)}") from None


def step_groups(base: Path) -> list[tuple[int, Path]]:
    """The groups of steps with containers that are still there, each with the token of its attempt."""
    return [(int(group.name.partition("-")[0]), group) for group in base.glob(f"slot-*{_CONTAINERS}/*-*/")]


def remove_tree(group: Path) -> None:
    """Remove a group with those below it; quietly leaves what still has processes."""
    for one in _groups(group):
        remove_tree(one)
    with contextlib.suppress(OSError):
        group.rmdir()


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


def why_unusable(mounts: Path = Path("/proc/mounts"), own: Path = Path("/proc/self/cgroup")) -> str:
    """Path and reason when this process cannot make groups that guards could kill and freeze; empty = it can."""
    base = find_base(f"toban-probe-{os.getpid()}", mounts, own, make=False)
    if base is None:
        return f"{mounts} and {own} show no cgroup of version 2"
    try:
        base.mkdir(exist_ok=True)
        try:
            files = [base / name for name in ("cgroup.kill", "cgroup.freeze", "cgroup.procs")]
            # Who moves a process writes into both groups.
            for file in (*files, base.parent / "cgroup.procs"):
                if not file.exists():
                    return f"{base.parent} gives no {file.name} to groups in it, which Linux 5.14 has"
                if not os.access(file, os.W_OK):
                    return f"{file}: {os.strerror(errno.EACCES)}"
        finally:
            base.rmdir()
    except OSError as error:
        return f"{base}: {os.strerror(error.errno or 0)}"
    return ""


def kill_all(base: Path) -> None:
    """SIGKILL to everything in all slots below `base`; for the groups of an incarnation that is over."""
    for group in _groups(base):
        kill_group(group)


def kill_group(group: Path) -> None:
    """SIGKILL to everything in it and below."""
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


def remove(base: Path, *, containers: bool = True) -> None:
    """Remove the groups; quietly leaves what still has processes. Without `containers` those stay, frozen: an engine would make them again."""
    for group in _groups(base):
        if containers or not group.name.endswith(_CONTAINERS):
            remove_tree(group)
    with contextlib.suppress(OSError):
        base.rmdir()


def _groups(base: Path) -> list[Path]:
    try:
        return [entry for entry in base.iterdir() if entry.is_dir()]
    except OSError:
        return []
