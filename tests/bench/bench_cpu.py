"""CPU seconds of processes and their children: unlike a rate they say something on a machine that is busy with other things too."""

import os
from collections.abc import Mapping
from pathlib import Path

from toban_stack.stack import Stack


def used(pid: int) -> float:
    """CPU seconds of a process and of all its children, those that run and those that have ended."""
    total = 0.0
    for member in family(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(fields[index]) for index in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")
    return total


def family(pid: int) -> list[int]:
    """The process and its live descendants."""
    members, at = [pid], 0
    while at < len(members):
        for task in Path(f"/proc/{members[at]}/task").glob("*/children"):
            members += [int(child) for child in task.read_text().split()]
        at += 1
    return members


class Usage:
    """CPU seconds by role, from its making on."""

    def __init__(self, stack: Stack, *, bench: bool = False) -> None:
        """`bench` counts this very process too, without its children."""
        self._bench = bench
        self._pids = {name: record.pid for name, record in stack.processes().items()}
        self._before = self._now()

    def seconds(self) -> dict[str, float]:
        """So many seconds a role took."""
        now = self._now()
        return {role: round(now[role] - self._before[role], 2) for role in sorted(now)}

    def _now(self) -> Mapping[str, float]:
        total: dict[str, float] = {}
        for name, pid in self._pids.items():
            role = name.rstrip("-0123456789")
            total[role] = total.get(role, 0.0) + used(pid)
        if self._bench:
            times = os.times()
            total["bench"] = times.user + times.system
        return total
