"""Limits of a slot by control groups: of version 2 in the slot's own group, else of version 1 in groups of their own. Without either, rlimits remain.

Controllers of version 2 can be given on only by a group without processes. Where the executor shares its group with others, as a login session
does, the kernel refuses that.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from toban_executor.decide.isolation import SandboxLimits

V2, V1, RLIMITS = "cgroup v2", "cgroup v1", "rlimits"
_GUARD_BYTES = 64 << 20
"""In version 2 the slot supervisor is in the group of its jobs."""
_PERIOD_US = 100_000


class LimitGroups(NamedTuple):
    """`kind` is V2, V1 or RLIMITS; of V1, the folder of each controller in which groups are made."""

    kind: str
    folders: Mapping[str, Path] = {}


def find(
    limits: SandboxLimits, base: Path | None, mounts: Path = Path("/proc/mounts"), own: Path = Path("/proc/self/cgroup")
) -> LimitGroups:
    """What can hold these limits here. `base` is the group of version 2 above the slots, if there is one."""
    needed = _controllers(limits)
    if not needed:
        return LimitGroups(RLIMITS)
    if base is not None and _enable(base, needed):
        return LimitGroups(V2)
    folders = _folders(mounts, own)
    if needed <= folders.keys() and all(os.access(folders[one], os.W_OK) for one in needed):
        return LimitGroups(V1, {one: folders[one] for one in sorted(needed)})
    return LimitGroups(RLIMITS)


def most_processes(
    group: Path | None, mounts: Path = Path("/proc/mounts"), own: Path = Path("/proc/self/cgroup")
) -> int | None:
    """How many processes this process's own group may have, its jobs among them; None = no limit. `group` is that of version 2, if there is one."""
    for folder in filter(None, (group, _folders(mounts, own).get("pids"))):
        with contextlib.suppress(OSError, ValueError):
            # Without a limit it says `max`.
            return int((folder / "pids.max").read_text())
    return None


def apply(groups: LimitGroups, limits: SandboxLimits, *, slot_group: Path | None, name: str) -> list[str]:
    """Set the limits of a slot; returns the files that its sandbox joins the groups by. Raises OSError, with the file that refuses."""
    if groups.kind == V2 and slot_group is not None:
        _set_v2(slot_group, limits)
        return []
    joined = []
    for controller, folder in groups.folders.items():
        group = folder / name
        group.mkdir(exist_ok=True)
        for file, value in _values_v1(controller, limits).items():
            _write(group / file, value)
        joined.append(str(group / "cgroup.procs"))
    return joined


def remove(groups: LimitGroups, names: list[str]) -> None:
    """Remove the groups of version 1 that nothing is in any more."""
    for folder in groups.folders.values():
        for name in names:
            with contextlib.suppress(OSError):
                (folder / name).rmdir()


def remove_earlier(
    incarnation: str, mounts: Path = Path("/proc/mounts"), own: Path = Path("/proc/self/cgroup")
) -> None:
    """The groups of version 1 of an incarnation that is over."""
    for folder in _folders(mounts, own).values():
        for group in folder.glob(group_name(incarnation, "*")):
            with contextlib.suppress(OSError):
                group.rmdir()


def group_name(incarnation: str, slot: int | str) -> str:
    """Of a slot, in version 1; `*` for the pattern of all."""
    return f"toban-{incarnation}-{slot}"


def _controllers(limits: SandboxLimits) -> set[str]:
    wanted = {"memory": limits.memory_mb, "pids": limits.processes, "cpu": limits.cpus}
    return {name for name, value in wanted.items() if value}


def _enable(base: Path, needed: set[str]) -> bool:
    try:
        for group in (base.parent, base):
            if not needed <= set((group / "cgroup.controllers").read_text().split()):
                return False
            (group / "cgroup.subtree_control").write_text(" ".join(f"+{one}" for one in sorted(needed)))
    except OSError:
        return False
    return True


def _set_v2(group: Path, limits: SandboxLimits) -> None:
    if limits.memory_mb:
        _write(group / "memory.max", str((limits.memory_mb << 20) + _GUARD_BYTES))
    if limits.processes:
        # The supervisor and the sandbox are in it.
        _write(group / "pids.max", str(limits.processes + 2))
    if limits.cpus:
        _write(group / "cpu.max", f"{int(limits.cpus * _PERIOD_US)} {_PERIOD_US}")


def _write(file: Path, value: str) -> None:
    try:
        file.write_text(value)
    except OSError as error:
        raise OSError(error.errno, f"it does not take {value} ({error.strerror})", str(file)) from None


def _values_v1(controller: str, limits: SandboxLimits) -> dict[str, str]:
    match controller:
        case "memory":
            return {"memory.limit_in_bytes": str(limits.memory_mb << 20)}
        case "pids":
            return {"pids.max": str(limits.processes + 1)}
        case _:
            return {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(int(limits.cpus * _PERIOD_US))}


def _folders(mounts: Path, own: Path) -> dict[str, Path]:
    """This process's group of each controller of version 1."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
        paths = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return {}
    roots = {name: Path(fields[1]) for fields in lines if fields[2] == "cgroup" for name in fields[3].split(",")}
    found = {}
    for _, names, path in paths:
        for name in filter(None, names.split(",")):
            if name in roots and (folder := roots[name] / path.lstrip("/")).is_dir():
                found[name] = folder
    return found
