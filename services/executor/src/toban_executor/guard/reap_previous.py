"""Ends what is left of earlier incarnations on this state directory, and shows whether that is proven.

The caller holds the exclusive lock of the state directory, so their executor process is gone and their guards are ending.
"""

import contextlib
import os
import shutil
from pathlib import Path

from toban_executor.guard import cgroup, guard_state, limit_groups, message_spool
from toban_executor.guard.clock import boottime, pause
from toban_executor.guard.process_tree import (
    descendants,
    kill_all,
    slot_of,
    start_time,
    with_argument,
    with_environment,
)
from toban_executor.guard.uid_claims import kill_left
from toban_executor.guard.work_dir import payload_home

_END_SECONDS = 2.0
"""Seconds for guards to end by themselves: they SIGKILL at once when the executor has gone."""
_SPOOL_SECONDS = 15.0
"""Seconds without any progress of what guards write before they end, 32 MiB each at most: a slow disk must not cost these lines."""


def end_previous(state_dir: Path) -> dict[str, bool]:
    """End what is left; returns each earlier incarnation with whether its trees are proven empty."""
    proven = {}
    for one in guard_state.read_all(state_dir / "guards"):
        proven[one.incarnation] = _reap_one(state_dir, one)
        limit_groups.remove_earlier(one.incarnation)
        shutil.rmtree(payload_home(one.incarnation), ignore_errors=True)
    return proven


def _reap_one(state_dir: Path, one: guard_state.GuardState) -> bool:
    if one.empty or one.boot_id != guard_state.boot_id():
        return True
    if not guard_state.in_this_namespace(one.pid_namespace):
        return False
    _wait_for_end(state_dir / "guards", one)
    if any(now.incarnation == one.incarnation and now.empty for now in guard_state.read_all(state_dir / "guards")):
        return True
    return _kill_rest(one)


def _wait_for_end(folder: Path, one: guard_state.GuardState) -> None:
    until, seen = boottime() + _END_SECONDS, dict[str, int]()
    while guards := _guards(one):
        if (drafts := message_spool.drafts(folder, one.incarnation)) != seen:
            until, seen = boottime() + (_SPOOL_SECONDS if drafts else _END_SECONDS), drafts
        if boottime() > until:
            for guard in guards:
                kill_all([guard, *descendants(guard)])
            return
        pause(0.005)


def _guards(one: guard_state.GuardState) -> list[int]:
    """Its guard supervisor; slot supervisors that have outlived it."""
    with contextlib.suppress(ChildProcessError):  # After a re-exec the old guard supervisor is our child.
        os.waitpid(one.supervisor, os.WNOHANG)
    if start_time(one.supervisor) == one.supervisor_start:
        return [one.supervisor]
    return [pid for pid in with_argument(one.incarnation.encode()) if slot_of(pid) is not None and start_time(pid)]


def _kill_rest(one: guard_state.GuardState) -> bool:
    """The guard supervisor died before it recorded an empty tree. Only the kernel's state of the cgroups is a proof then."""
    group = Path(one.cgroup) if one.cgroup else None
    until = boottime() + _END_SECONDS
    while boottime() < until:
        remaining = with_environment(f"TOBAN_INCARNATION={one.incarnation}".encode())
        kill_all(remaining)
        of_uids = kill_left(one.uids)
        if group is not None:
            cgroup.kill_all(group)
        if not remaining and not of_uids and (group is None or _is_empty(group, one)):
            break
        pause(0.01)
    if group is None or not _is_empty(group, one):
        return False
    cgroup.remove(group)
    return True


def _is_empty(group: Path, one: guard_state.GuardState) -> bool:
    return cgroup.is_empty(group, group_id=one.cgroup_id, root_id=one.cgroup_root, root=cgroup.mount_root())
