"""CPU seconds of processes and their children: comparable on a busy machine, unlike a rate.

All of it comes from /proc, so that it works for a stack of any commit.
"""

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from toban_stack.stack import Stack

CLASSES = ("leader", "coordinators", "postgres", "executor", "guards", "jobs", "others")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class _Stat(NamedTuple):
    """Clock ticks of one process, and of the children that it has waited for."""

    parent: int
    own: int
    ended_children: int


class _Processes:
    """Every process of the machine at one moment."""

    def __init__(self, named: Collection[int] = ()) -> None:
        """The `named` ones count by themselves, not as children: a supervisor is the parent of services."""
        self._named = frozenset(named)
        self._stats = dict(_scan())
        self._children: dict[int, list[int]] = defaultdict(list)
        for pid, stat in self._stats.items():
            self._children[stat.parent].append(pid)

    def get(self, pid: int) -> _Stat | None:
        """The process; None when it has ended."""
        return self._stats.get(pid)

    def descendants(self, pid: int) -> Iterator[_Stat]:
        """The live processes below it, but for named ones and what is below those."""
        for child in self._children.get(pid, ()):
            if child not in self._named:
                yield self._stats[child]
                yield from self.descendants(child)

    def family(self, pid: int) -> Iterator[int]:
        """Itself and the live processes below it, but for named ones and what is below those."""
        yield pid
        for child in self._children.get(pid, ()):
            if child not in self._named:
                yield from self.family(child)

    def ticks(self, pid: int) -> int:
        """Of the process and all its children, those that run and those that have ended; 0 when it has ended."""
        stat = self._stats.get(pid)
        family = [] if stat is None else [stat, *self.descendants(pid)]
        return sum(one.own + one.ended_children for one in family)


def used(pid: int) -> float:
    """CPU seconds of a process and of all its children, those that run and those that have ended."""
    return _Processes().ticks(pid) / TICKS_A_SECOND


class Usage:
    """CPU seconds by role since this object was made."""

    def __init__(self, stack: Stack, *, bench: bool = False) -> None:
        """`bench` counts this very process too, without its children."""
        self._bench = bench
        self._pids = {name: record.pid for name, record in stack.processes().items()}
        self._before = self._now()

    def seconds(self) -> dict[str, float]:
        """The CPU seconds of each role."""
        now = self._now()
        return {role: round(now[role] - self._before[role], 2) for role in sorted(now)}

    def _now(self) -> Mapping[str, float]:
        total: dict[str, float] = {}
        processes = _Processes(self._pids.values())
        for name, pid in self._pids.items():
            role = name.rstrip("-0123456789")
            total[role] = total.get(role, 0.0) + processes.ticks(pid) / TICKS_A_SECOND
        if self._bench:
            times = os.times()
            total["bench"] = times.user + times.system
        return total


class StackCpu:
    """CPU seconds of one stack by class: pid by name (coordinator-1, executor-2, postgres, ...), and which coordinator leads.

    A guard is a live descendant of an executor, and a job is what such a guard has waited for: call `seconds` while no job runs. The
    total stays exact when a guard is replaced; its past CPU moves from guards to jobs then.
    """

    def __init__(self, pids: Mapping[str, int], *, leader: str) -> None:
        self._pids = dict(pids)
        self._leader = leader

    def seconds(self) -> dict[str, float]:
        """CPU seconds of every class since the stack's start. Raises ProcessLookupError when a process of it has ended."""
        processes = _Processes(self._pids.values())
        ticks = dict.fromkeys(CLASSES, 0)
        for name, pid in self._pids.items():
            root = processes.get(pid)
            if root is None:
                raise ProcessLookupError(f"{name} (pid {pid}) has ended")
            if name.startswith("executor"):
                guards = list(processes.descendants(pid))
                ticks["executor"] += root.own
                ticks["guards"] += root.ended_children + sum(guard.own for guard in guards)
                ticks["jobs"] += sum(guard.ended_children for guard in guards)
            else:
                ticks[self._kind(name)] += processes.ticks(pid)
        return {kind: count / TICKS_A_SECOND for kind, count in ticks.items()}

    def _kind(self, name: str) -> str:
        if name.startswith("coordinator"):
            return "leader" if name == self._leader else "coordinators"
        return "postgres" if name.startswith("postgres") else "others"


class Idle:
    """CPU and wake-ups of one stack by class since this object was made; guards count apart from their executors, each other process under
    its role. Threads that end meanwhile take their wake-ups along."""

    def __init__(self, pids: Mapping[str, int], *, leader: str) -> None:
        """`pids` by the names of the stack's processes, of which `leader` is one."""
        self._pids = dict(pids)
        self._leader = leader
        self._began = time.monotonic()
        self._before = self._now()

    def figures(self) -> dict[str, dict[str, float]]:
        """Percent of a core and wake-ups a second by class, and their total."""
        now, passed = self._now(), time.monotonic() - self._began
        spent = {kind: [end - start for end, start in zip(now[kind], self._before[kind], strict=True)] for kind in now}
        spent["total"] = [sum(values) for values in zip(*spent.values(), strict=True)]
        return {
            "percent": {kind: round(ticks / TICKS_A_SECOND / passed * 100, 2) for kind, (ticks, _) in spent.items()},
            "wake_ups_per_s": {kind: round(wakes / passed, 1) for kind, (_, wakes) in spent.items()},
        }

    def _now(self) -> dict[str, tuple[int, int]]:
        """Clock ticks and wake-ups by class."""
        processes, total = _Processes(self._pids.values()), dict[str, tuple[int, int]]()
        for name, pid in self._pids.items():
            kind = self._kind(name)
            for member in processes.family(pid):
                part = "guards" if kind == "executors" and member != pid else kind
                stat = processes.get(member)
                ticks = 0 if stat is None else stat.own + stat.ended_children
                before = total.get(part, (0, 0))
                total[part] = before[0] + ticks, before[1] + _wake_ups(member)
        return total

    def _kind(self, name: str) -> str:
        role = name.rstrip("-0123456789") if name != "s3" else name
        if role == "coordinator":
            return "leader" if name == self._leader else "standbys"
        return "executors" if role == "executor" else role


def _wake_ups(pid: int) -> int:
    """How often the threads of a process have slept and been woken."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            _, _, rest = status.read_text().partition("\nvoluntary_ctxt_switches:")
            total += int(rest.split(maxsplit=1)[0])
    return total


def ms_per_run(before: Mapping[str, float], after: Mapping[str, float], runs: int) -> dict[str, float]:
    """CPU milliseconds a run by class between two calls of `seconds`, and their `total`."""
    spent = {kind: (after[kind] - before[kind]) * 1000 / runs for kind in CLASSES}
    return {**spent, "total": sum(spent.values())}


def _scan() -> Iterator[tuple[int, _Stat]]:
    """Every process of the machine, parents mostly before their children."""
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            # The command name is in parentheses and may contain blanks and parentheses itself.
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        user, system, children_user, children_system = (int(field) for field in fields[11:15])
        yield pid, _Stat(int(fields[1]), user + system, children_user + children_system)
