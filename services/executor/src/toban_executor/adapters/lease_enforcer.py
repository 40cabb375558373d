"""Freezes and kills the trees of slots from the executor's process, in place of guards that are stopped (docs/fencing.md 3.7)."""

import signal
from collections import Counter

from toban_executor.guard import cgroup
from toban_executor.guard.cgroup import SlotCgroup
from toban_executor.guard.clock import boottime, pause
from toban_executor.guard.freezer import LOOK_SECONDS, TreeFreezer
from toban_executor.guard.launch import GuardSet
from toban_executor.guard.process_tree import (
    children,
    descendants,
    has_argument,
    kill_all,
    real_uids,
    signal_tree,
    slot_of,
    start_time,
    with_argument,
    with_environment,
)
from toban_observability.logs import get_logger

ABANDONED_SECONDS = 1.0
"""How long the executor looks for jobs whose guards are dead, for all slots together: it answers nothing meanwhile."""
KILL_AGAIN_SECONDS = 0.005

_log = get_logger(__name__)


class LeaseEnforcer:
    """By signals: a cgroup that is frozen or killed from here takes its guard with it. So cgroup.kill is for what refuses a signal (EPERM)."""

    def __init__(self, guards: GuardSet) -> None:
        self._guards = guards
        # As the guards found it when they started; it is needed at each check of a slot.
        self._cgroup_base = cgroup.find_base(f"toban-{guards.incarnation}", make=False)
        # When `kill_abandoned` stops to repeat itself, on CLOCK_BOOTTIME.
        self._abandoned_end: float | None = None
        # Slots that were frozen from here, each with what was stopped.
        self._freezers: dict[int, TreeFreezer] = {}
        # How often `freeze` was called for a slot and its guard had not frozen it, since its last thaw.
        self._checks: Counter[int] = Counter()
        # Slots whose containers were frozen from here.
        self._frozen_containers: set[int] = set()
        # Slots whose attempts were killed from here.
        self._killed: set[int] = set()
        # Slots whose processes have refused signals.
        self._refusing: set[int] = set()

    def freeze(self, slot: int) -> bool:
        """Stop the tree of the slot; True when nothing of it runs, by this or by its guard."""
        if self._group_is_frozen(slot):
            return True
        self._checks[slot] += 1
        supervisor = self.supervisors().get(slot)
        if supervisor is None:
            # What it has left cannot be found by its tree: only `kill` does.
            return False
        freezer = self._freezers.setdefault(slot, TreeFreezer(root=supervisor, cgroup=None))
        still = self._freeze_containers(slot)
        return freezer.freeze() and still

    def has_frozen(self, slot: int) -> bool:
        """Whether the tree of the slot was frozen from here, or a freeze was tried."""
        return slot in self._freezers

    def checks(self, slot: int) -> int:
        """How often the tree of the slot was checked from here since its last thaw, also in vain."""
        return self._checks[slot]

    def has_stopped(self, slot: int) -> bool:
        """Whether a process of the slot was stopped from here and waits for `thaw`."""
        return slot in self._freezers and self._freezers[slot].has_stopped

    def thaw(self, slot: int) -> bool:
        """Let go on what was stopped from here; False when nothing was."""
        self._checks.pop(slot, None)
        freezer = self._freezers.pop(slot, None)
        if freezer is not None:
            if slot in self._frozen_containers and (group := self._group(slot)):
                group.containers.set_frozen(False)
            self._frozen_containers.discard(slot)
            freezer.thaw()
        return freezer is not None

    def forget(self, slot: int) -> None:
        """The attempt of the slot has ended."""
        self._checks.pop(slot, None)
        self._freezers.pop(slot, None)
        self._frozen_containers.discard(slot)
        self._killed.discard(slot)
        self._refusing.discard(slot)

    def has_killed(self, slot: int) -> bool:
        """Whether the attempt of the slot was killed from here."""
        return slot in self._killed

    def kill(self, slot: int) -> None:
        """SIGKILL to the tree of the slot, and to what a slot supervisor that died has left."""
        self._killed.add(slot)
        if group := self._group(slot):
            group.containers.kill()
        supervisor = self.supervisors().get(slot)
        if supervisor is not None and (refused := signal_tree(supervisor, (signal.SIGKILL,))):
            killed = self._kill_group(slot)
            if slot not in self._refusing:
                # It is tried again ten times a second.
                self._refusing.add(slot)
                how = "cgroup killed with its guard" if killed else "no cgroup to kill"
                _log.error(f"job processes refuse signals; {how}", slot=slot, pids=refused)
        if self._guards.supervisor.poll() is not None:
            # Its number may belong to another process by now.
            return
        for orphan in children(self._guards.supervisor.pid):
            # A slot supervisor that was forked a moment ago has no name yet, and the command line of its parent.
            if slot_of(orphan) is None and not has_argument(orphan, self._guards.incarnation.encode()):
                kill_all([*descendants(orphan), orphan])

    def kill_abandoned(self) -> None:
        """SIGKILL to jobs that have neither a slot supervisor nor a guard supervisor any more, so that nothing else ends them.

        It blocks. All calls together repeat it for ABANDONED_SECONDS at most; each checks at least once.
        """
        if self._abandoned_end is None:
            self._abandoned_end = boottime() + ABANDONED_SECONDS
        marker = f"TOBAN_INCARNATION={self._guards.incarnation}".encode()
        # Each with its start: its number may go to another process.
        killed: dict[int, int] = {}
        while True:
            supervisors = self.supervisors()
            unguarded = set(range(len(self._guards.slots))) - set(supervisors)
            for slot in unguarded:
                # Also what has another environment by now.
                self._kill_group(slot)
            kept = {pid for supervisor in supervisors.values() for pid in descendants(supervisor)}
            left = {pid for pid in with_environment(marker) if start_time(pid)} - kept | self._of_uids(unguarded)
            found = left.union(*map(descendants, left))
            killed |= {pid: start_time(pid) for pid in found - killed.keys()}
            kill_all(found)
            # One with another environment is found below its parent only, and on a busy machine it may outlive it.
            dying = any(started and start_time(pid) == started for pid, started in killed.items())
            if not (left or dying) or boottime() >= self._abandoned_end:
                return
            pause(KILL_AGAIN_SECONDS)

    def _of_uids(self, slots: set[int]) -> set[int]:
        """Living processes with the uids of these slots."""
        uids = {uid for slot, uid in enumerate(self._guards.claims.uids) if slot in slots}
        return {pid for pid, uid in real_uids() if uid in uids and start_time(pid)} if uids else set()

    def supervisors(self) -> dict[int, int]:
        """The slot supervisors that live, by slot."""
        guards = self._guards
        # When the guard supervisor is dead, its children belong to another process.
        alive = guards.supervisor.poll() is None
        those = children(guards.supervisor.pid) if alive else with_argument(guards.incarnation.encode())
        # A dead one keeps its name until a guard supervisor that is stopped goes on and reaps it.
        found = ((slot_of(pid), pid) for pid in those if start_time(pid))
        return {slot: pid for slot, pid in found if slot is not None}

    def _group_is_frozen(self, slot: int) -> bool:
        group = self._group(slot)
        try:
            return group is not None and group.is_frozen
        except OSError:
            return False

    def _freeze_containers(self, slot: int) -> bool:
        """Stop the containers of the slot; True when none of them runs."""
        group = self._group(slot)
        try:
            if group is None:
                return True
            # Also without a process: the engine may be about to start one.
            if not group.containers.is_frozen:
                self._frozen_containers.add(slot)
            return group.containers.freeze(LOOK_SECONDS)
        except OSError:
            return False

    def _kill_group(self, slot: int) -> bool:
        group = self._group(slot)
        return group is not None and group.kill_from_outside()

    def _group(self, slot: int) -> SlotCgroup | None:
        return None if self._cgroup_base is None else SlotCgroup(base=self._cgroup_base, slot=slot)
