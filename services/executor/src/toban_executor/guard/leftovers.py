"""Makes sure that nothing of earlier incarnations on this state directory lives, and says whether that is proven.

The caller holds the exclusive lock of the state directory, so their executor process is gone and their guards are ending.
"""

import contextlib
import os
import shutil
import signal
from pathlib import Path

from toban_executor.guard import cgroup, left, record
from toban_executor.guard.clock import boottime, pause
from toban_executor.guard.scratch import payload_home
from toban_executor.guard.tree import descendants, start_time, with_environment

_PATIENCE = 2.0
"""Seconds for guards to end by themselves: they SIGKILL at once when the executor has gone."""
_WRITING_PATIENCE = 15.0
"""Seconds without any progress of what guards write before they end, 32 MiB each at most: a slow disk must not cost these lines."""


def settle(state_dir: Path) -> dict[str, bool]:
    """End what is left; returns each earlier incarnation with whether its trees are proven empty."""
    settled = {}
    for one in record.read_all(state_dir / "guards"):
        settled[one.incarnation] = _settle_one(state_dir, one)
        shutil.rmtree(payload_home(one.incarnation), ignore_errors=True)
    return settled


def _settle_one(state_dir: Path, one: record.GuardRecord) -> bool:
    if one.empty or one.boot_id != record.boot_id():
        return True
    if one.pid_namespace != record.pid_namespace():
        return False
    _wait_for_end(state_dir / "guards", one)
    if any(now.incarnation == one.incarnation and now.empty for now in record.read_all(state_dir / "guards")):
        return True
    return _kill_rest(one)


def _wait_for_end(folder: Path, one: record.GuardRecord) -> None:
    until, seen = boottime() + _PATIENCE, dict[str, int]()
    while _alive(one):
        if (drafts := left.drafts(folder, one.incarnation)) != seen:
            until, seen = boottime() + (_WRITING_PATIENCE if drafts else _PATIENCE), drafts
        if boottime() > until:
            _kill([one.master, *descendants(one.master)])
            return
        pause(0.005)


def _alive(one: record.GuardRecord) -> bool:
    with contextlib.suppress(ChildProcessError):  # After a re-exec the old master is our child.
        os.waitpid(one.master, os.WNOHANG)
    return start_time(one.master) == one.master_start


def _kill_rest(one: record.GuardRecord) -> bool:
    """The master died without its testimony. Only the kernel's word about the cgroups is a proof then."""
    group = Path(one.cgroup) if one.cgroup else None
    until = boottime() + _PATIENCE
    while boottime() < until:
        left = with_environment(f"TOBAN_INCARNATION={one.incarnation}".encode())
        _kill(left)
        if group is not None:
            cgroup.kill_all(group)
        if not left and (group is None or cgroup.is_empty(group)):
            break
        pause(0.01)
    if group is None or not cgroup.is_empty(group):
        return False
    cgroup.remove(group)
    return True


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
