"""Stops and kills of an executor's processes around the end of its lease, one case an executor, on a stack whose coordinators are away."""

import itertools
import os
import signal
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toban_executor.guard.process_tree import slot_of
from toban_runtime.clock import SystemClock
from toban_stack.processes import descendants
from toban_stack.stack import Stack

STOP, KILL = signal.SIGSTOP, signal.SIGKILL


class Act(NamedTuple):
    """A signal to a part of an executor: E its process, M the guard supervisor, K the slot supervisors; `at` seconds after the deadline."""

    part: str
    signum: signal.Signals
    at: float


@dataclass(frozen=True)
class Case:
    """What happens to one executor; `by_signals`: it may make no cgroup for its slots, so that it freezes by SIGSTOP."""

    acts: tuple[Act, ...]
    by_signals: bool

    @property
    def is_excluded(self) -> bool:
        """Docs/fencing.md 3.7: executor and guard are both down at the deadline, so that nothing can act then."""
        down = {act.part: act.signum for act in self.acts if act.at < LATER}
        if "E" not in down or "K" not in down:
            return False
        # A guard supervisor that runs kills what dead slot supervisors leave, and wakes stopped ones when the executor is dead.
        return "M" in down or (down["E"] is STOP and down["K"] is STOP)

    def __str__(self) -> str:
        acts = " ".join(f"{act.part}:{act.signum.name[3:]}{act.at:+g}" for act in self.acts)
        return f"{acts} ({'SIGSTOP' if self.by_signals else 'cgroup'})"


def _at(part: str, signum: signal.Signals, at: float) -> tuple[Act, ...]:
    """G: both parts of the guard."""
    return tuple(Act(one, signum, at) for one in ("MK" if part == "G" else part))


# What acts at the deadline has done so by LATER, on a busy machine too.
LATER = 1.0
ONCE = (-0.6, -0.02, LATER)
TWICE = ((-0.6, -0.3), (-0.3, LATER), (LATER, LATER + 0.3))


GROUPS = ("alone", "E-M", "E-K", "E-G", "M-K")


def every_case(group: str) -> list[Case]:
    """Each part alone, or two in both orders: stopped and killed, before and after the deadline, on both paths."""
    first, _, second = group.partition("-")
    alone = [_at(part, signum, at) for part in "EMKG" for signum in (STOP, KILL) for at in ONCE]
    pairs = [
        _at(one, this, at[0]) + _at(other, that, at[1])
        for one, other in ((first, second), (second, first))
        for this, that in itertools.product((STOP, KILL), repeat=2)
        for at in TWICE
    ]
    return [Case(acts, by_signals) for acts in (pairs if second else alone) for by_signals in (False, True)]


# One round: what has differed most in the past.
CHOSEN = (
    _at("E", STOP, -0.6),
    _at("G", STOP, -0.6),
    _at("M", KILL, -0.6) + _at("K", STOP, -0.3),
    _at("E", STOP, -0.3) + _at("K", KILL, LATER),
)


def chosen_cases() -> list[Case]:
    """Few cases, on both paths."""
    return [Case(acts, by_signals) for acts in CHOSEN for by_signals in (False, True)]


class ExecutorParts:
    """The processes of one executor by part."""

    def __init__(self, stack: Stack, name: str) -> None:
        executor = stack.processes()[name]
        below = [one.pid for one in descendants([executor])]
        slots = [pid for pid in below if slot_of(pid) is not None]
        [supervisor] = {_parent(pid) for pid in slots}
        self.pids: dict[str, list[int]] = {"E": [executor.pid], "M": [supervisor], "K": slots}
        self.stopped: set[int] = set()
        self.killed: set[str] = set()

    def signal(self, act: Act) -> None:
        """Send it; to what has ended, nothing."""
        for pid in self.pids[act.part]:
            with suppress(ProcessLookupError):
                os.kill(pid, act.signum)
        if act.signum is STOP:
            self.stopped.update(self.pids[act.part])
        else:
            self.killed.add(act.part)

    def wake(self) -> None:
        """SIGCONT to all that were stopped, the guards first."""
        for pid in sorted(self.stopped, key=self.pids["E"].count):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def carry_out(acts: Iterable[tuple[float, ExecutorParts, Act]]) -> float:
    """Each act at its moment (CLOCK_BOOTTIME); returns by how many seconds the latest came too late."""
    clock, pause, late = SystemClock(), threading.Event(), 0.0
    for at, parts, act in sorted(acts, key=lambda one: one[0]):
        pause.wait(max(0.0, at - clock.boottime()))
        late = max(late, clock.boottime() - at)
        parts.signal(act)
    return late


def rounds(cases: Sequence[Case], size: int) -> list[Sequence[Case]]:
    """So many at a time; each executor keeps its path, as the cases alternate."""
    return [cases[first : first + size] for first in range(0, len(cases), size)]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
