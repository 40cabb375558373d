"""The guards of each incarnation in the state directory: who they are, and later that nothing of them is left."""

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from toban_executor.guard.process_tree import start_time


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """The guards of one incarnation. `empty` is written by the guard supervisor as its last act, after it has seen that no
    slot supervisor and no process of any job is left."""

    incarnation: str
    boot_id: str
    pid_namespace: str
    supervisor: int
    supervisor_start: int
    cgroup: str
    # Device and inode of that group, and of the root of its mount as this process sees it.
    cgroup_id: str = ""
    cgroup_root: str = ""
    empty: bool = False
    # Of its slots, in class `isolated`.
    uids: tuple[int, ...] = ()


_KEYS = {"supervisor": "master", "supervisor_start": "master_start"}
"""Field to its key in the file, where they differ: the next release reads the files of this one."""
_ADDED = ("cgroup_id", "cgroup_root", "uids")
"""Fields that files of earlier releases do not have."""


def boot_id() -> str:
    """The kernel's random id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """Names the pid namespace, whose inode is used again later, with the start of its first process: pids of another one mean nothing here."""
    return f"{Path('/proc/self/ns/pid').readlink()}@{start_time(1)}"


def in_this_namespace(recorded: str) -> bool:
    """Whether a record was written in this pid namespace; earlier releases recorded the inode alone."""
    here = pid_namespace()
    return recorded == (here if "@" in recorded else here.partition("@")[0])


def write(directory: Path, record: GuardState) -> None:
    """Store the record so that a reader sees the old or the new one, also after a power cut."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    draft = directory / f"{record.incarnation}.tmp"
    with draft.open("w") as file:
        json.dump({_KEYS.get(name, name): value for name, value in asdict(record).items()}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(directory / f"{record.incarnation}.json")


def read_all(directory: Path) -> list[GuardState]:
    """All records there; an unreadable one counts as absent."""
    found = []
    for file in sorted(directory.glob("*.json")):
        try:
            found.append(_read(json.loads(file.read_text())))
        except (OSError, ValueError, TypeError, LookupError):
            continue
    return found


def _read(values: dict[str, Any]) -> GuardState:
    return GuardState(**_with_defaults(values))


def _with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Fields that earlier releases did not record keep their defaults."""
    keys = {field.name: _KEYS.get(field.name, field.name) for field in fields(GuardState)}
    found = {name: values[key] for name, key in keys.items() if key in values or name not in _ADDED}
    return {**found, "uids": tuple(found.get("uids", ()))}


def forget(directory: Path, incarnation: str) -> None:
    """Remove the record of an incarnation whose end a coordinator knows."""
    (directory / f"{incarnation}.json").unlink(missing_ok=True)
