"""Freezes and kills the trees of slots from the executor's process, in place of guards that are stopped (docs/fencing.md 3.7)."""

import contextlib
import os
import signal

from toban_executor.guard import cgroup
from toban_executor.guard.cgroup import SlotCgroup
from toban_executor.guard.clock import boottime, pause
from toban_executor.guard.freezer import TreeFreezer
from toban_executor.guard.launch import GuardSet
from toban_executor.guard.process_tree import (
    children,
    descendants,
    signal_tree,
    slot_of,
    start_time,
    with_argument,
    with_environment,
)

ABANDONED_SECONDS = 1.0
"""So long the executor looks for jobs whose guards are dead."""
KILL_AGAIN_SECONDS = 0.005


class LeaseEnforcer:
    """By signals only: a cgroup that is frozen from here would stop its guard as well."""

    def __init__(self, guards: GuardSet) -> None:
        self._guards = guards
        # Slots that were frozen from here, each with what was stopped.
        self._freezers: dict[int, TreeFreezer] = {}

    def freeze(self, slot: int) -> bool:
        """Stop the tree of the slot; True when nothing of it runs, by this or by its guard."""
        if self._group_is_frozen(slot):
            return True
        supervisor = self._supervisors().get(slot)
        if supervisor is None:
            return False
        freezer = self._freezers.setdefault(slot, TreeFreezer(root=supervisor, cgroup=None))
        return freezer.freeze()

    def has_frozen(self, slot: int) -> bool:
        """Whether the tree of the slot was stopped from here."""
        return slot in self._freezers

    def thaw(self, slot: int) -> bool:
        """Let go on what was stopped from here; False when nothing was."""
        freezer = self._freezers.pop(slot, None)
        if freezer is not None:
            freezer.thaw()
        return freezer is not None

    def forget(self, slot: int) -> None:
        """The attempt of the slot has ended."""
        self._freezers.pop(slot, None)

    def kill(self, slot: int) -> None:
        """SIGKILL to the tree of the slot, and to what a slot supervisor that died has left."""
        supervisor = self._supervisors().get(slot)
        if supervisor is not None:
            signal_tree(supervisor, (signal.SIGKILL,))
        for orphan in children(self._guards.supervisor.pid):
            if slot_of(orphan) is None:
                for pid in (*descendants(orphan), orphan):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)

    def kill_abandoned(self) -> None:
        """SIGKILL to jobs that have neither a slot supervisor nor a guard supervisor any more, so that nothing else ends them."""
        end = boottime() + ABANDONED_SECONDS
        marker = f"TOBAN_INCARNATION={self._guards.incarnation}".encode()
        while boottime() < end:
            supervisors = self._supervisors()
            self._kill_groups(set(range(len(self._guards.slots))) - set(supervisors))
            kept = {pid for supervisor in supervisors.values() for pid in descendants(supervisor)}
            left = {pid for pid in with_environment(marker) if start_time(pid)} - kept
            if not left:
                return
            for pid in left.union(*map(descendants, left)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            pause(KILL_AGAIN_SECONDS)

    def _kill_groups(self, slots: set[int]) -> None:
        """Also what has another environment by now, where slots have cgroups."""
        base = cgroup.find_base(f"toban-{self._guards.incarnation}", make=False)
        for slot in slots:
            with contextlib.suppress(OSError):
                if base is not None:
                    (base / f"slot-{slot}" / "cgroup.kill").write_text("1")

    def _supervisors(self) -> dict[int, int]:
        guards = self._guards
        # When the guard supervisor is dead, its children belong to another process.
        alive = guards.supervisor.poll() is None
        those = children(guards.supervisor.pid) if alive else with_argument(guards.incarnation.encode())
        # A dead one keeps its name until a guard supervisor that is stopped goes on and reaps it.
        found = ((slot_of(pid), pid) for pid in those if start_time(pid))
        return {slot: pid for slot, pid in found if slot is not None}

    def _group_is_frozen(self, slot: int) -> bool:
        base = cgroup.find_base(f"toban-{self._guards.incarnation}", make=False)
        if base is None:
            return False
        try:
            return SlotCgroup(base=base, slot=slot).is_frozen
        except OSError:
            return False
