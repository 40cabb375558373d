"""The executor kills a slot's tree by signals, and by its cgroup where the kernel refuses those (docs/fencing.md 3.7)."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toban_executor.adapters import lease_enforcer
from toban_executor.adapters.lease_enforcer import LeaseEnforcer
from toban_executor.guard import cgroup
from toban_executor.guard.process_tree import children, slot_of

# A slot supervisor with one job below it, which lasts until it is killed.
SLOT = "from toban_executor.guard.process_tree import set_slot_name; import subprocess; set_slot_name(0); subprocess.run(['sleep', '1000'])"
# Its parent. It is a process of its own, since the enforcer kills every child of the guard supervisor that is no slot supervisor.
GUARDS = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.fixture
def enforcer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An enforcer over a guard supervisor with one slot supervisor, whose groups would be in `tmp_path`; and the guard supervisor."""
    supervisor = subprocess.Popen([sys.executable, "-c", GUARDS, SLOT])
    monkeypatch.setattr(cgroup, "find_base", lambda _name, *, make: tmp_path)
    guards: Any = SimpleNamespace(supervisor=supervisor, incarnation="i")
    while not [job for slot in children(supervisor.pid) for job in children(slot) if slot_of(slot) == 0]:
        assert supervisor.poll() is None
    yield LeaseEnforcer(guards), supervisor
    for slot in children(supervisor.pid):
        for job in children(slot):
            os.kill(job, signal.SIGKILL)
    supervisor.wait(60)


def group(path: Path) -> Path:
    made = path / "slot-0"
    made.mkdir()
    (made / "cgroup.kill").touch()
    return made / "cgroup.kill"


def test_signals_come_first(enforcer: Any, tmp_path: Path) -> None:
    """The group would take its guard with it."""
    it, supervisor = enforcer
    kill = group(tmp_path)
    it.kill(0)
    supervisor.wait(60)
    assert kill.read_text() == ""


def test_what_refuses_signals_is_killed_by_its_group(
    enforcer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, supervisor = enforcer
    monkeypatch.setattr(lease_enforcer, "signal_tree", lambda pid, _signals: children(pid))
    it.kill(0)
    assert supervisor.poll() is None, "without a group nothing can be done"
    kill = group(tmp_path)
    it.kill(0)
    assert kill.read_text() == "1"
