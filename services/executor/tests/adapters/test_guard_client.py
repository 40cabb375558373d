"""The executor's end of the connection to its guards."""

import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.adapters import guard_client
from toban_executor.adapters.guard_client import GuardClient
from toban_executor.decide.guard_freeze import FREEZE_ALLOWANCE, FREEZE_CHECKS, FREEZE_LATEST
from toban_executor.decide.guard_types import AttemptStart, FreezeTurn, Kill
from toban_executor.decide.lease_end import LEASE_REASON
from toban_executor.decide.models import AttemptEnd, StartOrder, StepOrder
from toban_executor.guard import freezer
from toban_executor.guard.clock import instant
from toban_executor.guard.freezer import thread_states
from toban_executor.guard.process_tree import children, start_time
from toban_executor.guard.protocol import decode_command, encode_report
from toban_fencing.executor_lease import Instant
from toban_runtime.clock import SystemClock
from toban_testing.waiting import until

KEY = AttemptKey(7, 1)


def process(program: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([program])


@pytest.mark.parametrize(("program", "proven"), [("/bin/true", True), ("/bin/false", False)])
async def test_only_guards_that_ended_in_order_prove_that_nothing_is_left(program: str, proven: bool) -> None:
    control, far = socket.socketpair()
    far.close()
    guards: Any = SimpleNamespace(
        incarnation="i", slots=[], control=control, close=control.close, supervisor=process(program)
    )
    assert await GuardClient(guards=guards, clock=SystemClock()).close(timeout=60) is proven


@pytest.mark.parametrize("script", ["sleep 600", "env -i sleep 600 & sleep 600"])
async def test_jobs_of_dead_guards_are_dead_when_the_incarnation_ends(
    guard_harness: type[Any], tmp_path: Path, script: str
) -> None:
    harness = guard_harness(tmp_path, slots=2)
    env = {"PATH": "/usr/bin:/bin", "TOBAN_INCARNATION": harness.incarnation}
    harness.spawn("sh", "-c", f"{script}; true", env=env)
    main = harness.receive(AttemptStart).pid
    jobs = [main, *children(main)]
    gone = asyncio.Event()
    client = GuardClient(guards=harness.guards, clock=SystemClock())
    supervisor = harness.guards.supervisor.pid
    guards = [supervisor, *children(supervisor)]
    for pid in guards:
        os.kill(pid, signal.SIGKILL)
    harness.guards.supervisor.wait()
    await until(lambda: not any(map(start_time, guards)))
    client.listen(SimpleNamespace(guards_gone=gone.set, supervisor_gone=lambda: None))  # type: ignore[arg-type]
    await asyncio.wait_for(gone.wait(), 60)
    assert list(filter(start_time, jobs)) == [], "when any other task can know that the incarnation is over"
    await client.close(timeout=1.0)


class Listener:
    """Notes what the guards report of one attempt."""

    def __init__(self) -> None:
        self.pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.end: asyncio.Future[AttemptEnd] = asyncio.get_running_loop().create_future()
        self.turns: list[bool] = []

    def ended(self, end: AttemptEnd) -> None:
        self.end.set_result(end)

    def started(self, _key: AttemptKey, pid: int, _at_ns: int) -> None:
        self.pid.set_result(pid)

    def freeze_turned(self, turn: FreezeTurn) -> None:
        self.turns.append(turn.frozen)

    def output(self, *_block: Any) -> None:
        pass


def listening(guards: Any) -> tuple[GuardClient, Listener]:
    client, listener = GuardClient(guards=guards, clock=SystemClock()), Listener()
    client.listen(listener)  # type: ignore[arg-type]
    return client, listener


async def spawned(client: GuardClient, listener: Listener) -> tuple[int, list[int]]:
    """A job that the end of its lease freezes: its pid, and those of the guards."""
    step = StepOrder(type="command", argv=("sleep", "600"))
    order = StartOrder(key=KEY, steps=(step,), grace_seconds=0.5, on_lease_loss="freeze")
    env = {"PATH": "/usr/bin:/bin"}
    client.spawn(order, env=env, programs=("",), deadline=lease(), lease_grace=0.2, freeze_max=300.0)
    main = await asyncio.wait_for(listener.pid, 60)
    supervisor = client._guards.supervisor.pid
    return main, [supervisor, *children(supervisor)]


def lease() -> Instant:
    now = instant()
    return Instant(now.boot + 60, now.wall + 60)


async def stopped(pid: int, wanted: bool) -> None:
    """Until the process is stopped, or runs again."""
    await until(lambda: (ord("T") in thread_states(pid)) == wanted)


async def test_a_grant_thaws_what_a_freeze_from_here_has_stopped_in_part(
    guard_harness: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guards are stopped, and the lease is renewed before the tree is verified as frozen: the attempt must be named to be thawed."""
    client, listener = listening(guard_harness(tmp_path).guards)
    main, guards = await spawned(client, listener)
    for pid in guards:
        os.kill(pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr(freezer, "CLEAN_LOOKS", 1_000_000)
        client.enforce_lease(late=FREEZE_ALLOWANCE / 2, frozen=(), over=(), doubtful=False)
        await stopped(main, True)
        assert listener.turns == [True]
        client.push_deadline(lease(), thaw={KEY}, frozen_seconds={}, freeze_max=300.0)
        await stopped(main, False)
        assert listener.turns == [True, False]
    finally:
        for pid in guards:
            os.kill(pid, signal.SIGCONT)
        await client.close(timeout=60)


@pytest.mark.parametrize("over", [False, True])
async def test_what_is_killed_in_place_of_a_stopped_guard_ends_by_the_lease(
    guard_harness: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    """Neither the guards, which are stopped, nor this process can verify in time that the tree is frozen; or it was frozen for too long."""
    client, listener = listening(guard_harness(tmp_path).guards)
    main, guards = await spawned(client, listener)
    for pid in guards:
        os.kill(pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr(freezer, "CLEAN_LOOKS", 1_000_000)
        for _ in range(FREEZE_CHECKS - 1):
            client.enforce_lease(late=FREEZE_ALLOWANCE, frozen=(), over={KEY} if over else (), doubtful=False)
            assert bool(start_time(main)) or over, "one check in vain says little on a slow machine"
        client.enforce_lease(late=FREEZE_ALLOWANCE, frozen=(), over={KEY} if over else (), doubtful=False)
        # Before the guards go on.
        await until(lambda: not start_time(main))
    finally:
        for pid in guards:
            os.kill(pid, signal.SIGCONT)
    end = await asyncio.wait_for(listener.end, 60)
    assert (end.cause, end.reason, end.signal) == ("lease", LEASE_REASON, signal.SIGKILL)
    await client.close(timeout=60)


async def test_a_guard_that_sees_the_kill_before_its_cause_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that was at work may have collected the process before it reads the command, which it gets once."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control, supervisor = socket.socketpair()
    ended: Any = SimpleNamespace(pid=0, poll=lambda: 0, returncode=0)
    guards: Any = SimpleNamespace(
        incarnation="i", slots=[near], control=control, supervisor=ended, close=lambda: (near.close(), control.close())
    )
    client, listener = listening(guards)
    monkeypatch.setattr(client._enforcer, "supervisors", dict)
    order = StartOrder(key=KEY, steps=(StepOrder(type="command", argv=("sleep",)),), on_lease_loss="freeze")
    client.spawn(order, env={}, programs=("",), deadline=lease(), lease_grace=0.2, freeze_max=300.0)
    for _ in range(2):
        client.enforce_lease(late=FREEZE_LATEST, frozen=(), over=(), doubtful=False)
    _spawn, kill = (decode_command(far.recv(1 << 16)).command for _ in range(2))
    assert kill == Kill(token=KEY.token, cause="lease", reason=LEASE_REASON, grace=0.0)
    far.setblocking(False)
    with pytest.raises(BlockingIOError):
        far.recv(1)
    far.send(encode_report(AttemptEnd(key=KEY, pid=5, signal=9)))
    end = await asyncio.wait_for(listener.end, 60)
    assert (end.cause, end.reason) == ("lease", LEASE_REASON)
    await client.close(timeout=1.0)
    for sock in (far, supervisor):
        sock.close()


async def test_the_use_of_a_job_is_that_of_its_own_processes(guard_harness: type[Any], tmp_path: Path) -> None:
    client, listener = listening(guard_harness(tmp_path).guards)
    assert await client.measure() == {}
    main, _ = await spawned(client, listener)
    used = (await client.measure())[KEY]
    assert used.processes == 1, "neither its guard nor what the slot keeps"
    assert 0 < used.memory_bytes < 1 << 30 and used.cpu_seconds < 60
    os.kill(main, signal.SIGKILL)
    await asyncio.wait_for(listener.end, 60)
    assert await client.measure() == {}
    await client.close(timeout=60)


async def test_a_first_process_that_ended_before_its_start_was_read_leaves_no_attempt_without_samples(
    guard_harness: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, listener = listening(guard_harness(tmp_path).guards)
    monkeypatch.setattr(guard_client, "start_time", lambda _pid: 0)
    await spawned(client, listener)
    assert (await client.measure())[KEY].processes == 1
    await client.close(timeout=60)
