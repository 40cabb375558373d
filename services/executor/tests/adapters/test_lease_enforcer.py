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
from toban_executor.adapters.lease_enforcer import ABANDONED_SECONDS, LeaseEnforcer
from toban_executor.guard import cgroup
from toban_executor.guard.process_tree import children, has_argument, slot_of, start_time
from toban_executor.guard.uid_claims import Claims

# A slot supervisor with one job below it, which lasts until it is killed.
SLOT = "from toban_executor.guard.process_tree import set_slot_name; import subprocess; set_slot_name(0); subprocess.run(['sleep', '1000'])"
# Its parent. It is a process of its own, since the enforcer kills every child of the guard supervisor that is no slot supervisor.
GUARDS = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
# A guard supervisor with a slot supervisor that it has just forked, and an orphan of another slot: their pids are its output.
FORKS = """
import os, subprocess, time
fork = os.fork()
if not fork:
    time.sleep(1000)
orphan = subprocess.Popen(["sleep", "1000"])
print(fork, orphan.pid, flush=True)
orphan.wait()
"""


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


def test_a_container_that_is_about_to_start_is_frozen(enforcer: Any, tmp_path: Path) -> None:
    """The group has no process yet."""
    it, _supervisor = enforcer
    containers = tmp_path / "slot-0-containers"
    containers.mkdir()
    (containers / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    freeze = containers / "cgroup.freeze"
    freeze.write_text("0\n")
    it.freeze(0)
    assert freeze.read_text() == "1"
    it.thaw(0)
    assert freeze.read_text() == "0"


def test_a_group_that_its_guard_has_frozen_stays_so(enforcer: Any, tmp_path: Path) -> None:
    it, _supervisor = enforcer
    containers = tmp_path / "slot-0-containers"
    containers.mkdir()
    freeze = containers / "cgroup.freeze"
    freeze.write_text("1\n")
    it.freeze(0)
    it.thaw(0)
    assert freeze.read_text() == "1"


def test_each_check_counts_also_of_a_slot_without_a_supervisor(enforcer: Any, tmp_path: Path) -> None:
    """It cannot be frozen, and must not be left alone longer than others before it is killed."""
    it, _supervisor = enforcer
    for slot in (0, 1):
        assert it.checks(slot) == 0
        assert [(it.freeze(slot), it.checks(slot)) for _ in range(2)] == [(slot == 0, 1), (slot == 0, 2)]
        assert it.thaw(slot) is (slot == 0) and it.checks(slot) == 0
        it.freeze(slot)
        it.forget(slot)
        assert it.checks(slot) == 0
    frozen = tmp_path / "slot-1"
    frozen.mkdir()
    (frozen / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    assert it.freeze(1) and it.checks(1) == 0, "its guard has frozen it"


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


def test_a_slot_supervisor_without_a_name_yet_is_no_orphan() -> None:
    """It would be lost with its slot, and so would its successors as long as the lease is enforced."""
    supervisor = subprocess.Popen([sys.executable, "-c", FORKS, "the-incarnation"], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    fork, orphan = map(int, supervisor.stdout.readline().split())
    try:
        while has_argument(orphan, b"the-incarnation"):
            assert supervisor.poll() is None
        guards: Any = SimpleNamespace(supervisor=supervisor, incarnation="the-incarnation")
        LeaseEnforcer(guards).kill(0)
        supervisor.wait(60)
        assert not start_time(orphan)
        assert start_time(fork)
    finally:
        os.kill(fork, signal.SIGKILL)
        supervisor.stdout.close()
        supervisor.wait(60)


def test_the_search_for_abandoned_jobs_has_one_time_for_all_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """It blocks the executor, and each slot's connection ends by itself. A job that came since is found all the same."""
    now, looks = [100.0], [0]

    def look(_marker: bytes) -> list[int]:
        looks[0] += 1
        return [os.getpid()]

    guards: Any = SimpleNamespace(
        supervisor=SimpleNamespace(poll=lambda: 0), incarnation="i", slots=[], claims=Claims()
    )
    monkeypatch.setattr(lease_enforcer, "with_environment", look)
    monkeypatch.setattr(lease_enforcer, "with_argument", lambda _argument: [])
    monkeypatch.setattr(lease_enforcer, "descendants", lambda _pid: [])
    monkeypatch.setattr(lease_enforcer, "kill_all", lambda _pids: None)
    monkeypatch.setattr(lease_enforcer, "boottime", lambda: now[0])
    monkeypatch.setattr(lease_enforcer, "pause", lambda _seconds: now.__setitem__(0, now[0] + 0.1))
    it = LeaseEnforcer(guards)
    it.kill_abandoned()
    assert now[0] == pytest.approx(100.0 + ABANDONED_SECONDS, abs=0.2)
    first = looks[0]
    for _slot in range(10):
        it.kill_abandoned()
    assert (looks[0] - first, now[0]) == (10, pytest.approx(100.0 + ABANDONED_SECONDS, abs=0.2))


def test_an_abandoned_job_that_dies_after_its_parent_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a signal takes its time, and what has another environment is found below its parent only."""
    with subprocess.Popen(["sleep", "1000"]) as parent, subprocess.Popen(["sleep", "1000"]) as child:

        def killed(pids: set[int]) -> None:
            if parent.pid in pids:
                assert pids == {parent.pid, child.pid}
                parent.kill()
                parent.wait(60)

        def later(_seconds: float) -> None:
            if parent.poll() is not None:
                child.kill()

        guards: Any = SimpleNamespace(
            supervisor=SimpleNamespace(poll=lambda: 0), incarnation="i", slots=[], claims=Claims()
        )
        monkeypatch.setattr(lease_enforcer, "ABANDONED_SECONDS", 60.0)
        monkeypatch.setattr(lease_enforcer, "with_environment", lambda _marker: [parent.pid])
        monkeypatch.setattr(lease_enforcer, "with_argument", lambda _argument: [])
        monkeypatch.setattr(lease_enforcer, "descendants", lambda _pid: [child.pid])
        monkeypatch.setattr(lease_enforcer, "kill_all", killed)
        monkeypatch.setattr(lease_enforcer, "pause", later)
        LeaseEnforcer(guards).kill_abandoned()
        assert not start_time(child.pid)


def test_the_number_of_a_dead_guard_supervisor_names_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have gone to another process, whose children are not ours."""
    with subprocess.Popen(["sleep", "1000"]) as stranger, subprocess.Popen(["true"]) as supervisor:
        supervisor.wait(60)
        guards: Any = SimpleNamespace(supervisor=supervisor, incarnation="of no process")
        monkeypatch.setattr(lease_enforcer, "children", lambda _pid: [stranger.pid])
        LeaseEnforcer(guards).kill(0)
        assert stranger.poll() is None
        stranger.kill()
