"""What a set of guards leaves in the state directory about itself: who they are, and later that nothing of them is left."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRecord:
    """The guards of one incarnation. `empty` is written by the master as its last act, after it has seen that no keeper
    and no process of any job is left."""

    incarnation: str
    boot_id: str
    pid_namespace: str
    master: int
    master_start: int
    cgroup: str
    empty: bool = False


def boot_id() -> str:
    """The kernel's random id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """Names the pid namespace: pids of another one mean nothing here."""
    return str(Path("/proc/self/ns/pid").readlink())


def write(directory: Path, record: GuardRecord) -> None:
    """Store the record so that a reader sees the old or the new one, also after a power cut."""
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / f"{record.incarnation}.tmp"
    with draft.open("w") as file:
        json.dump(asdict(record), file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(directory / f"{record.incarnation}.json")


def read_all(directory: Path) -> list[GuardRecord]:
    """All records there; an unreadable one counts as absent."""
    found = []
    for file in sorted(directory.glob("*.json")):
        try:
            found.append(GuardRecord(**json.loads(file.read_text())))
        except (OSError, ValueError, TypeError):
            continue
    return found


def forget(directory: Path, incarnation: str) -> None:
    """Remove the record of an incarnation that a coordinator has been told about."""
    (directory / f"{incarnation}.json").unlink(missing_ok=True)
