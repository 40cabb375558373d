"""What an earlier incarnation left is only proven to be gone where its process ids mean something (docs/fencing.md 3.8)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard import cgroup, guard_state, reap_previous
from toban_executor.guard.process_tree import start_time
from toban_executor.guard.reap_previous import end_previous


@pytest.mark.parametrize(
    ("differs", "proven"),
    [
        ({"pid_namespace": "pid:[1]"}, False),
        ({"pid_namespace": guard_state.pid_namespace() + "1", "supervisor_start": 1}, False),
        ({"boot_id": "another"}, True),
        ({"supervisor_start": 1}, False),
    ],
    ids=[
        "another namespace",
        "another namespace that had the same inode",
        "another boot",
        "a guard supervisor that died before it recorded an empty tree, and no cgroup",
    ],
)
def test_what_proves_the_end_of_earlier_guards(tmp_path: Path, differs: dict[str, Any], proven: bool) -> None:
    """In another namespace the same numbers name other processes; after another boot all are gone; an empty look proves nothing."""
    with subprocess.Popen(["sleep", "60"]) as somebody:
        try:
            here = {"boot_id": guard_state.boot_id(), "pid_namespace": guard_state.pid_namespace()}
            here |= {"supervisor": somebody.pid, "supervisor_start": start_time(somebody.pid), **differs}
            guard_state.write(tmp_path / "guards", guard_state.GuardState(incarnation="i", cgroup="", **here))
            assert end_previous(tmp_path) == {"i": proven}
            assert somebody.poll() is None
        finally:
            somebody.kill()


@pytest.mark.parametrize(
    ("script", "whole"),
    [("for _ in 1 2 3 4 5 6 7; do sleep 0.2; echo line >> $0; done; mv $0 $1", True), ("sleep 60; mv $0 $1", False)],
    ids=["writes on", "stands still"],
)
def test_guards_that_write_before_they_end_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, whole: bool
) -> None:
    """A slow disk is no reason to lose what an executor that died had not written."""
    monkeypatch.setattr(reap_previous, "_END_SECONDS", 0.1)
    monkeypatch.setattr(reap_previous, "_SPOOL_SECONDS", 1.0)
    here = {"boot_id": guard_state.boot_id(), "pid_namespace": guard_state.pid_namespace()}
    draft, left = tmp_path / "guards" / "i.0.draft", tmp_path / "guards" / "i.0.left"
    draft.parent.mkdir()
    draft.touch()
    with subprocess.Popen(["sh", "-c", script, draft, left]) as guard:
        here |= {"supervisor": guard.pid, "supervisor_start": start_time(guard.pid)}
        guard_state.write(tmp_path / "guards", guard_state.GuardState(incarnation="i", cgroup="", **here))
        end_previous(tmp_path)
    assert left.exists() is whole


# It writes to its spool, as a slot supervisor whose guard supervisor was killed; its argument is the incarnation.
SLOT = """
import sys, time
from toban_executor.guard.process_tree import set_slot_name
set_slot_name(0)
print("ready", flush=True)
time.sleep(0.5)
open(sys.argv[2], "w").close()
"""


def test_slot_supervisors_that_outlive_their_guard_supervisor_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they spool is recovered after that, and a draft is taken for one of a process that died."""
    monkeypatch.setattr(reap_previous, "_END_SECONDS", 60.0)
    spool, incarnation = tmp_path / "spool", f"reap-{os.getpid()}"
    with subprocess.Popen([sys.executable, "-c", SLOT, incarnation, spool], stdout=subprocess.PIPE) as slot:
        assert slot.stdout is not None and slot.stdout.readline()
        here = {"boot_id": guard_state.boot_id(), "pid_namespace": guard_state.pid_namespace()}
        dead = {"supervisor": slot.pid, "supervisor_start": 1, "cgroup": ""}
        guard_state.write(tmp_path / "guards", guard_state.GuardState(incarnation=incarnation, **here, **dead))
        end_previous(tmp_path)
        assert spool.exists()


def group_of(root: Path, name: str, populated: int) -> Path:
    """A folder that looks like a cgroup."""
    group = root / name
    group.mkdir()
    (group / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
    return group


def test_a_missing_group_is_empty_only_where_it_would_be_seen(tmp_path: Path) -> None:
    """In another cgroup namespace, or below another mount, its path is missing too while its processes live."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    group = group_of(root, "toban-i", 1)
    ids = {"group_id": cgroup.identity(group), "root_id": cgroup.identity(root)}
    assert not cgroup.is_empty(group, root=root, **ids)
    assert not cgroup.is_empty(elsewhere / "toban-i", root=elsewhere, **ids), "another mount"
    assert not cgroup.is_empty(elsewhere / "toban-i", root=None, **ids)
    (group / "cgroup.events").write_text("populated 0\n")
    assert cgroup.is_empty(group, root=root, **ids)
    assert not cgroup.is_empty(group_of(root, "other", 0), root=root, **ids), "another group"
    assert cgroup.is_empty(root / "removed", root=root, **ids)
    assert not cgroup.is_empty(root / "removed", root=root, group_id="", root_id=""), "a record of an earlier release"


def test_records_of_an_earlier_release_are_read(tmp_path: Path) -> None:
    old = {"incarnation": "i", "boot_id": "b", "pid_namespace": "pid:[1]", "master": 1, "master_start": 2}
    (tmp_path / "i.json").write_text(json.dumps(old | {"cgroup": "/g", "empty": True}))
    [one] = guard_state.read_all(tmp_path)
    assert (one.supervisor, one.cgroup, one.cgroup_root, one.empty) == (1, "/g", "", True)
    here = guard_state.pid_namespace()
    assert guard_state.in_this_namespace(here) and guard_state.in_this_namespace(here.partition("@")[0])
    assert not guard_state.in_this_namespace(here + "1")
