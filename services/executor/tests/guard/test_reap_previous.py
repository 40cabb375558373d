"""What an earlier incarnation left is only proven to be gone where its process ids mean something (docs/fencing.md 3.8)."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard import guard_state, reap_previous
from toban_executor.guard.process_tree import start_time
from toban_executor.guard.reap_previous import end_previous


@pytest.mark.parametrize(
    ("differs", "proven"),
    [({"pid_namespace": "pid:[1]"}, False), ({"boot_id": "another"}, True), ({"supervisor_start": 1}, False)],
    ids=[
        "another namespace",
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
