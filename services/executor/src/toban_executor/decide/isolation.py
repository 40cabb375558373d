"""How the jobs of an executor are kept apart: class `isolated` with a uid a slot, class `shared` with the uid of the executor (docs/isolation.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from toban_domain.job import ISOLATED, SHARED

CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
}
"""What class `isolated` needs, by the number of the kernel."""
PRIVATE_HOME = "/tmp"
"""Working directory, home and temporary folder of a job with a mount namespace: its slot's own, empty at its start."""
PRIVATE_MEMORY = "/dev/shm"
"""Payload, socket and secrets of such a job."""
_HIGHEST_UID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Isolation:
    """The class of an executor, and what it consists of here, for people. `home` is the variable HOME of jobs; empty = that of the executor."""

    kind: str
    details: tuple[str, ...] = ()
    home: str = ""


NO_SANDBOX = Isolation(SHARED)
BY_SETTING = Isolation(SHARED, ("chosen by SCHEDULER_ISOLATION",))
"""`toban doctor` warns of the first only."""


class UidRange(NamedTuple):
    """Uids from `first` to `last`; each is a gid too."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> UidRange:
        """From `60706-61183`. Raises ValueError with a text for people."""
        first, dash, last = text.partition("-")
        if not (dash and first.isascii() and first.isdecimal() and last.isascii() and last.isdecimal()):
            raise ValueError(f"{text!r} is no range of uids; write FIRST-LAST, as 60706-61183")
        if not 0 < int(first) <= int(last) <= _HIGHEST_UID:
            raise ValueError(f"{text!r} is no range of uids: 1 to {_HIGHEST_UID}, the lower one first")
        return cls(int(first), int(last))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


class SandboxLimits(NamedTuple):
    """Of the processes of one slot; 0 = none."""

    memory_mb: int = 0
    processes: int = 0
    cpus: float = 0.0


class SandboxPlan(NamedTuple):
    """What guards need for sandboxes. `namespaces`: mounts, processes and System V IPC of its own for each slot.

    Without `uids` jobs have the executor's, in a user namespace: class `shared`. Such jobs do not see the folders `hidden`; others see the folders
    `shown` although they are below a closed one.
    """

    uids: UidRange | None
    namespaces: bool
    limits: SandboxLimits = SandboxLimits()
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def encode(self) -> str:
        """For a command line."""
        return json.dumps(self)

    @classmethod
    def decode(cls, text: str) -> SandboxPlan | None:
        """The inverse of encode; None for jobs without a sandbox, which have an empty text."""
        if not text:
            return None
        uids, namespaces, limits, *folders = json.loads(text)
        return cls(UidRange(*uids) if uids else None, namespaces, SandboxLimits(*limits), *map(tuple, folders))


class Abilities(NamedTuple):
    """What this process may do: its effective capabilities (CapEff of /proc), why it gets no namespaces (empty = it does) and no user namespace with
    them, the folder above its state that other uids may not enter (empty = none), the uids that exist here (uid_map of /proc), and the folder on the
    way to its state, itself included, that other uids may change (empty = none)."""

    effective: int
    no_namespaces: str
    no_user_namespace: str = ""
    closed: str = ""
    uid_map: str = "0 0 4294967295"
    changeable: str = ""


def missing(effective: int) -> list[str]:
    """The capabilities that class `isolated` needs and that are not there."""
    return [name for name, number in CAPABILITIES.items() if not effective >> number & 1]


def why_not_isolated(abilities: Abilities, uids: UidRange) -> str:
    """Empty where the class is possible."""
    if not any(first <= uids.first and uids.last < first + count for first, count in _mapped(abilities.uid_map)):
        return f"this container has not all of the uids {uids}; SCHEDULER_JOB_UIDS names others"
    if lacking := missing(abilities.effective):
        return f"it needs root or the capabilities {', '.join(CAPABILITIES)}, and has not {', '.join(lacking)}"
    if abilities.changeable:
        return f"every user may rename what is in {abilities.changeable}, also the state of the executor; do chmod o-w {abilities.changeable}"
    if abilities.no_namespaces and abilities.closed:
        return (
            f"without namespaces ({abilities.no_namespaces}) jobs reach their work folder by its path, "
            f"and {abilities.closed} is closed to other users"
        )
    return ""


def _mapped(uid_map: str) -> Iterator[tuple[int, int]]:
    for line in uid_map.splitlines():
        first, _, count = line.split()
        yield int(first), int(count)


def possible(plan: SandboxPlan, abilities: Abilities, *, isolated: bool) -> SandboxPlan | None:
    """The plan as it is possible here: for class `isolated`, else for a sandbox with the executor's uid, else None."""
    if isolated:
        return plan._replace(namespaces=not abilities.no_namespaces, hidden=())
    return None if abilities.no_user_namespace else plan._replace(uids=None, namespaces=True)


def describe(plan: SandboxPlan, *, limited_by: str) -> Isolation:
    """What people are shown of the class."""
    details = ["a uid for each slot"] if plan.uids else ["the uid of the executor"]
    details.append("own processes, mounts and IPC" if plan.namespaces else "no namespaces of its own")
    if plan.hidden:
        details.append("files of Toban are hidden")
    limits = plan.limits
    parts = [f"{limits.memory_mb} MiB of memory"] if limits.memory_mb else []
    parts += [f"{limits.processes} processes"] if limits.processes else []
    parts += [f"{limits.cpus:g} CPUs"] if limits.cpus else []
    if parts:
        details.append(f"{', '.join(parts)} by {limited_by}")
    if plan.uids is None:
        return Isolation(SHARED, tuple(details))
    return Isolation(ISOLATED, tuple(details), home=PRIVATE_HOME if plan.namespaces else "/")
