"""Stops a job's tree without ending it, and lets it run again: by the slot's cgroup where there is one, else by SIGSTOP and SIGCONT."""

import contextlib
import os
import signal
from pathlib import Path

from toban_executor.guard.cgroup import SlotCgroup
from toban_executor.guard.clock import boottime, pause
from toban_executor.guard.process_tree import children, descendants, is_there, scan_tree

LOOK_SECONDS = 0.05
"""How long one call of `freeze` may try; the caller repeats it."""
CLEAN_LOOKS = 3
"""Looks in a row that found nothing that ran or had just ended: a scan of /proc is no snapshot, and one that ended may have forked."""
_LEAST_LOOKS = 10
"""So many looks a call has at least, however slow the machine is."""
_PAUSE = 0.001
_VFORK_SECONDS = 0.01
_DEAD = frozenset(b"ZX")
_NOT_SHOWN = ord("?")
_NOT_RUNNING = frozenset(b"Tt") | _DEAD


class TreeFreezer:
    """The processes below `root`, which is not stopped itself. `cgroup` None: by signals alone."""

    def __init__(self, *, root: int, cgroup: SlotCgroup | None) -> None:
        self._root = root
        self._cgroup = cgroup
        # Those that were running: a job may have stopped others itself, which stay as they are.
        self._stopped: set[int] = set()

    def freeze(self) -> bool:
        """Stop what runs; True when no process of the tree runs any more. Call it again for processes that have come since."""
        end = boottime() + LOOK_SECONDS
        clean = looks = 0
        ended_before: set[int] = set()
        while True:
            looks += 1
            running, ended = self._stop_running()
            clean = 0 if running or ended - ended_before or self._containers_run() else clean + 1
            ended_before = ended
            if clean == CLEAN_LOOKS:
                return True
            if boottime() >= end and looks >= _LEAST_LOOKS:
                return False
            if running:
                pause(_PAUSE)

    def _stop_running(self) -> tuple[bool, set[int]]:
        """Whether something ran, and those that have ended: what one of them forked at the last moment is found by the next look only."""
        group_frozen = self._freeze_group()
        running, ended = False, set()
        for pid in scan_tree(self._root):
            states = thread_states(pid)
            if states <= _DEAD:
                ended.add(pid)
            elif not (states <= _NOT_RUNNING or (group_frozen and self._cgroup is not None and self._cgroup.has(pid))):
                running = True
                self._stop(pid)
        return running, ended

    def _containers_run(self) -> bool:
        try:
            return self._cgroup is not None and not self._cgroup.containers.is_still
        except OSError:
            return True

    @property
    def has_stopped(self) -> bool:
        """Whether `freeze` has sent SIGSTOP to a process since the last `thaw`."""
        return bool(self._stopped)

    def thaw(self) -> None:
        """Let go on what `freeze` has stopped. Without effect when nothing is frozen."""
        if self._cgroup is not None:
            self._cgroup.thaw()
        if self._stopped:
            for pid in descendants(self._root):
                if pid in self._stopped:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGCONT)
            self._stopped.clear()

    def _stop(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGSTOP)
            self._stopped.add(pid)
        # In vfork a parent stops only after its child has executed a program: one that was stopped before that must go on for a moment.
        begun = [child for child in children(pid) if child in self._stopped] if is_blocked(pid) else []
        for child in begun:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGCONT)
        end = boottime() + _VFORK_SECONDS
        while begun and is_blocked(pid) and boottime() < end:
            pause(_PAUSE)

    def _freeze_group(self) -> bool:
        """Whether the slot's cgroup is frozen as a whole; False also without one."""
        end = boottime() + LOOK_SECONDS
        while self._cgroup is not None:
            try:
                if self._cgroup.freeze():
                    return True
            except OSError:
                return False
            if boottime() >= end:
                return False
            pause(_PAUSE)
        return False


def thread_states(pid: int) -> set[int]:
    """The letters of the states of its threads; empty when the process is gone, "?" for one that /proc does not show: it may run."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 (names only)
    except OSError:
        return {_NOT_SHOWN} if is_there(pid) else set()
    return {_state(pid, thread) for thread in threads}


def is_blocked(pid: int) -> bool:
    """Whether the process waits where no signal but SIGKILL reaches it, as in vfork."""
    return _state(pid, str(pid)) == ord("D")


def _state(pid: int, thread: str) -> int:
    """The letter of its state; that of a dead one when it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/task/{thread}/stat").read_bytes().rsplit(b") ", 1)[1][0]
    except (OSError, IndexError):
        return ord("X")
