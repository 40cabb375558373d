"""Freezing by real guards, through the cgroup of a slot and by signals (docs/fencing.md 3.7)."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.decide.guard_types import Cancel, FreezeTurn, Kill, Reset, SetDeadline, SlotLost
from toban_executor.decide.models import AttemptEnd, StepOrder
from toban_executor.guard import guard_state
from toban_executor.guard.clock import boottime, pause, wall
from toban_executor.guard.freezer import TreeFreezer, thread_states
from toban_executor.guard.process_tree import children, descendants, scan_tree, slot_of, start_time
from toban_fencing.executor_lease import Instant
from toban_testing.guard_harness import GuardHarness, guard_that_freezes_by
from toban_testing.waiting import wait_for

COUNTS = 'while :; do echo x >> "$OUT"; sleep 0.01; done'
"""Shows by its file whether it runs."""

HOPS = """
import os, sys
while True:
    with open(os.environ["OUT"], "a") as file:
        file.write("x")
    if os.fork():
        os._exit(0)
"""
"""Never the same process for long."""


WAYS = ("cgroup", "signals")


@pytest.fixture(scope="module", params=WAYS)
def _module_guard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardHarness]:
    with guard_that_freezes_by(request.param, tmp_path_factory.mktemp("shared-guard")) as harness:
        yield harness


@pytest.fixture
def guard(shared_guard: GuardHarness) -> GuardHarness:
    return shared_guard


@pytest.fixture(params=WAYS)
def own_guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GuardHarness]:
    with guard_that_freezes_by(request.param, tmp_path) as harness:
        yield harness


def uses_cgroup(guard: Any) -> bool:
    group = Path(guard_state.read_all(guard.state / "guards")[0].cgroup or guard.state / "none")
    return (group / "slot-0" / "cgroup.freeze").exists()


def keeper(guard: Any) -> int:
    """The slot supervisor."""
    [pid] = [pid for pid in children(guard.guards.supervisor.pid) if slot_of(pid) == 0]
    return pid


def start(guard: Any, file: Path, script: str = COUNTS, **fields: Any) -> int:
    """A job with `on_lease_loss: freeze` that has written to `file`."""
    env = {"PATH": os.environ["PATH"], "OUT": str(file)}
    file.unlink(missing_ok=True)
    token = guard.spawn("sh", "-c", script, env=env, on_lease_loss="freeze", **fields)
    wait_for(lambda: file.exists() and file.stat().st_size)
    return int(token)


def frozen(guard: Any, file: Path, script: str = COUNTS, **fields: Any) -> tuple[int, FreezeTurn]:
    """As `start`, and its lease has ended. On a machine so busy that the guard kills it, another one is tried."""
    while True:
        token = start(guard, file, script, **fields)
        renew(guard, token, 0.2)
        report = guard.receive((FreezeTurn, AttemptEnd))
        if isinstance(report, FreezeTurn):
            return token, report
        assert "could not be frozen" in report.reason


def runs(pid: int) -> bool:
    """Whether a thread of it is neither stopped nor dead."""
    return not thread_states(pid) <= set(b"TtZX")


def assert_still(file: Path, seconds: float = 0.4) -> None:
    """Nothing is written to the file for a while."""
    size = file.stat().st_size
    pause(seconds)
    assert file.stat().st_size == size


def assert_grows(file: Path) -> None:
    size = file.stat().st_size
    wait_for(lambda: file.stat().st_size > size)


def renew(guard: Any, token: int, seconds: float = 60.0, **fields: Any) -> None:
    deadline = Instant(boottime() + seconds, wall() + seconds)
    guard.send(SetDeadline(token=token, deadline=deadline, **{"thaw": True, **fields}))


def test_it_is_frozen_at_the_deadline_and_goes_on_after_the_grant(guard: Any, tmp_path: Path) -> None:
    file = tmp_path / "out"
    begun = boottime()
    token, turn = frozen(guard, file)
    assert boottime() >= begun + 0.2, "not a moment before the deadline"
    assert (turn.key.token, turn.frozen, turn.seconds) == (token, True, 0.0)
    [main] = children(keeper(guard))
    # A process that a cgroup has frozen looks like one that sleeps.
    assert uses_cgroup(guard) or not runs(main)
    assert_still(file)
    renew(guard, token)
    turn = guard.receive(FreezeTurn)
    assert not turn.frozen
    assert turn.seconds >= 0.4
    assert_grows(file)
    guard.send(Kill(token=token, cause="cancel", reason="asked", grace=5.0))
    assert guard.receive(AttemptEnd).signal == signal.SIGTERM
    assert guard.run("sh", "-c", "exit 3").exit_code == 3


def test_the_way_that_the_test_wants_is_taken(guard: Any, request: pytest.FixtureRequest) -> None:
    assert guard.run("/bin/true").exit_code == 0, "the slot is ready"
    assert uses_cgroup(guard) == ("[cgroup]" in request.node.name)


def test_a_tree_of_sessions_and_daemons_is_frozen_as_a_whole(guard: Any, tmp_path: Path) -> None:
    files = [tmp_path / f"out{number}" for number in range(6)]
    loops = "; ".join(f"(env -i OUT={file} PATH=$PATH setsid sh -c '{COUNTS}' &)" for file in files)
    ready = "for f in 0 1 2 3 4 5; do while [ ! -s $OUT$f ]; do sleep 0.01; done; done; echo > $OUT"
    token, _turn = frozen(guard, tmp_path / "out", f"{loops}; {ready}; sleep 60")
    sizes = [file.stat().st_size for file in files]
    pause(0.4)
    assert [file.stat().st_size for file in files] == sizes
    renew(guard, token)
    for file in files:
        assert_grows(file)


def test_a_job_that_forks_and_exits_all_the_time_does_not_run_on(guard: Any, tmp_path: Path) -> None:
    """It is caught, or killed because it was not caught in time."""
    file, program = tmp_path / "out", tmp_path / "hops.py"
    program.write_text(HOPS)
    token = start(guard, file, f"({sys.executable} {program} &); exec sleep 60")
    renew(guard, token, 0.2)
    report = guard.receive((FreezeTurn, AttemptEnd))
    assert_still(file)
    if isinstance(report, FreezeTurn):
        renew(guard, report.key.token)
        assert_grows(file)
    else:
        assert "could not be frozen" in report.reason
        assert descendants(keeper(guard)) == []


def test_a_job_that_forks_and_exits_all_the_time_is_killed(guard: Any, tmp_path: Path) -> None:
    """Also by signals, which have to meet it: it lives for less time than a look at the processes that it has left takes."""
    file, program = tmp_path / "out", tmp_path / "hops.py"
    program.write_text(HOPS)
    token = start(guard, file, f"({sys.executable} {program} &); exec sleep 60")
    guard.send(Kill(token=token, cause="cancel", reason="asked", grace=0.0))
    assert guard.receive(AttemptEnd).cause == "cancel"
    assert descendants(keeper(guard)) == []
    assert_still(file)


def test_a_scan_begins_with_the_latest_child() -> None:
    """Before it looks at those that have ended."""
    ended = [subprocess.Popen(["true"]) for _ in range(3)]
    with subprocess.Popen(["sleep", "60"]) as latest:
        found = scan_tree(os.getpid())
        assert next(found) == latest.pid
        assert [one.pid for one in reversed(ended)] == list(itertools.islice(found, 3))
        latest.kill()
    for one in ended:
        one.wait()


def test_a_process_that_others_continue_is_stopped_again(guard: Any, tmp_path: Path) -> None:
    file = tmp_path / "out"
    frozen(guard, file)
    [main] = children(keeper(guard))
    os.kill(main, signal.SIGCONT)
    pause(0.4)
    assert_still(file)
    assert start_time(main)


def test_what_the_job_had_stopped_itself_stays_stopped(guard: Any, tmp_path: Path) -> None:
    file, pid = tmp_path / "out", tmp_path / "pid"
    token, _turn = frozen(guard, file, f"sleep 60 & echo $! > {pid}; kill -STOP $!; {COUNTS}")
    renew(guard, token)
    guard.receive(FreezeTurn)
    assert_grows(file)
    assert not runs(int(pid.read_text()))


@pytest.mark.parametrize("grace", [0.0, 30.0])
def test_a_frozen_job_is_killed_and_runs_nothing_before(guard: Any, tmp_path: Path, grace: float) -> None:
    """Without a lease not even its handler of SIGTERM."""
    file, mark = tmp_path / "out", tmp_path / "handled"
    token, _turn = frozen(guard, file, f"trap 'touch {mark}' TERM; {COUNTS}")
    begun = boottime()
    guard.send(Kill(token=token, cause="cancel", reason="asked", grace=grace))
    end = guard.receive(AttemptEnd)
    assert (end.cause, end.signal) == ("cancel", signal.SIGKILL)
    assert boottime() - begun < 25, "not after the grace"
    assert not mark.exists()
    # The slot is as it was: its next job is started where it can be frozen and killed.
    frozen(guard, file)
    assert_still(file)


LISTENS = """
import os, signal, sys, time
import toban
if "DEAF" in os.environ:
    signal.signal(signal.SIGTERM, lambda *_: open(os.environ["OUT"] + ".term", "w").close())
job = toban.current_job()
while True:
    with open(os.environ["OUT"], "a") as file:
        file.write("x")
    if job.cancelled():
        open(os.environ["OUT"] + ".told", "w").close()
        if "DEAF" not in os.environ:
            sys.exit(7)
    time.sleep(0.01)
"""
"""Ends when it learns of its cancel, unless DEAF is set."""


@pytest.mark.parametrize("deaf", [False, True])
def test_a_cooperative_cancel_of_a_frozen_job_waits_for_the_grant(guard: Any, tmp_path: Path, deaf: bool) -> None:
    """Then the job is told; a deaf one gets SIGTERM after the grace and SIGKILL after as long again."""
    file, program = tmp_path / "out", tmp_path / "listens.py"
    program.write_text(LISTENS)
    told, termed = Path(f"{file}.told"), Path(f"{file}.term")
    sdk = Path(__file__).parents[4] / "libs/sdk/src"
    command = f"{'DEAF=1 ' if deaf else ''}PYTHONPATH={sdk} exec {sys.executable} {program}"
    token, _turn = frozen(guard, file, command)
    guard.send(Cancel(token=token, reason="asked", grace=0.5, cooperative=True))
    # Longer than the grace.
    assert_still(file, 0.8)
    assert not told.exists() and not termed.exists()
    renew(guard, token)
    assert not guard.receive(FreezeTurn).frozen
    end = guard.receive(AttemptEnd)
    assert told.exists()
    assert (end.cause, end.reason) == ("cancel", "asked")
    assert (end.exit_code, end.signal) == ((None, signal.SIGKILL) if deaf else (7, None))
    assert termed.exists() == deaf
    assert descendants(keeper(guard)) == []


def test_a_job_that_stays_frozen_for_too_long_is_killed(guard: Any, tmp_path: Path) -> None:
    file = tmp_path / "out"
    token, _turn = frozen(guard, file)
    guard.send(SetDeadline(token=token, deadline=Instant(0.0, 0.0), freeze_max=0.5))
    end = guard.receive(AttemptEnd)
    assert (end.cause, end.signal) == ("lease", signal.SIGKILL)
    assert "lease_freeze_max_seconds" in end.reason


def test_time_in_the_freezer_is_no_time_of_the_job(guard: Any, tmp_path: Path) -> None:
    file = tmp_path / "out"
    token, _turn = frozen(guard, file, timeout_seconds=1.2)
    pause(1.5)
    renew(guard, token)
    assert guard.receive(FreezeTurn).seconds >= 1.5
    assert_grows(file)
    assert guard.receive(AttemptEnd).cause == "timeout"


def test_the_next_step_does_not_start_while_frozen(guard: Any, tmp_path: Path) -> None:
    mark = tmp_path / "second"
    file = tmp_path / "pid"
    hold = f"trap '' TERM; (exec sleep 60) & echo $! > {file}; exit 0"
    steps = [StepOrder(type="command", argv=argv) for argv in (("sh", "-c", hold), ("touch", str(mark)))]
    token = guard.spawn("-", steps=steps, grace_seconds=30.0, on_lease_loss="freeze")
    wait_for(lambda: file.exists() and file.read_text().strip())
    renew(guard, token, 0.2)
    guard.receive(FreezeTurn)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    pause(0.4)
    assert not mark.exists()
    renew(guard, token)
    assert guard.receive(AttemptEnd).exit_code == 0
    assert mark.exists()


def test_the_end_of_the_executor_kills_what_is_frozen(own_guard: Any, tmp_path: Path) -> None:
    guard = own_guard
    file = tmp_path / "out"
    frozen(guard, file)
    [main] = children(keeper(guard))
    guard.guards.close()
    guard.guards.supervisor.wait(timeout=60)
    assert not start_time(main)
    assert [one.empty for one in guard_state.read_all(tmp_path / "guards")] == [True]


def test_a_keeper_that_dies_takes_its_frozen_job_along(own_guard: Any, tmp_path: Path) -> None:
    """Its successor is not frozen with the group that it enters."""
    guard = own_guard
    file = tmp_path / "out"
    frozen(guard, file)
    [main] = children(keeper(guard))
    os.kill(keeper(guard), signal.SIGKILL)
    guard.send(Reset(guard.receive(SlotLost).losses))
    assert not start_time(main)
    assert guard.run("/bin/true").exit_code == 0
    frozen(guard, file)


VFORKS = """
import os, sys, subprocess
while True:
    with open(os.environ["OUT"], "a") as file:
        file.write("x")
    subprocess.run(["/bin/true"])
"""
"""Is in vfork for much of its time."""


def test_a_job_that_is_in_vfork_is_frozen_and_not_killed(guard: Any, tmp_path: Path) -> None:
    """Its child may be stopped before it executes its program, and the parent waits for that."""
    file, program = tmp_path / "out", tmp_path / "vforks.py"
    program.write_text(VFORKS)
    token, _turn = frozen(guard, file, f"exec {sys.executable} {program}")
    for _ in range(5):
        assert_still(file, 0.1)
        renew(guard, token, 0.3)
        assert not guard.receive(FreezeTurn).frozen
        report = guard.receive((FreezeTurn, AttemptEnd))
        assert isinstance(report, FreezeTurn), report.reason


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_guard_that_was_stopped_keeps_what_another_has_frozen(guard: Any, tmp_path: Path) -> None:
    """As the executor does when a guard does not act at the deadline."""
    file = tmp_path / "out"
    token = start(guard, file)
    slot = keeper(guard)
    freezer = TreeFreezer(root=slot, cgroup=None)
    with stopped(slot):
        renew(guard, token, 0.2)
        assert wait_for(freezer.freeze)
        pause(1.0)
    assert guard.receive(FreezeTurn).frozen
    renew(guard, token)
    assert not guard.receive(FreezeTurn).frozen
    freezer.thaw()
    assert_grows(file)


def test_a_guard_that_was_stopped_kills_what_ran_on(guard: Any, tmp_path: Path) -> None:
    """Or freezes it at its first look, which is as good from then on."""
    file = tmp_path / "out"
    token = start(guard, file)
    with stopped(keeper(guard)):
        renew(guard, token, 0.2)
        pause(1.0)
    guard.receive((FreezeTurn, AttemptEnd))
    assert_still(file)
