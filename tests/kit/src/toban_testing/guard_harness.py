"""Guards as real processes, without an executor."""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard_types import Command, HoldOutput, Kill, Spawn
from toban_executor.decide.isolation import SandboxPlan
from toban_executor.decide.models import AttemptEnd, StartOrder, StepOrder
from toban_executor.decide.warm import WarmLimits
from toban_executor.guard import cgroup
from toban_executor.guard.clock import boottime, wall
from toban_executor.guard.launch import GuardSet, start_guards
from toban_executor.guard.process_tree import children, slot_of
from toban_executor.guard.protocol import Report, decode_report, encode_command
from toban_executor.guard.work_dir import payload_home
from toban_fencing.executor_lease import Instant
from toban_testing.waiting import wait_for


def _new_incarnation() -> str:
    """The name of guards."""
    return f"test-incarnation-{os.urandom(6).hex()}"


def _kill(token: int) -> Kill:
    return Kill(token=token, cause="cancel", reason="", grace=0.0)


class GuardHarness:
    """Guards as real processes, spoken to directly."""

    def __init__(
        self,
        state: Path,
        slots: int = 1,
        warm: WarmLimits | None = None,
        *,
        incarnation: str = "",
        sandboxes: SandboxPlan | None = None,
    ) -> None:
        self.state = state
        # Its own on this machine: guards end what is left of the incarnation that they are named after.
        self.incarnation = incarnation or _new_incarnation()
        self.guards: GuardSet = start_guards(
            incarnation=self.incarnation, state_dir=state, slots=slots, warm=warm, sandboxes=sandboxes
        )
        self.blocks: list[LogBlock] = []
        # Reports of the guards.
        self.received = 0
        self.tokens = count(1)
        self.last_token = 0

    def spawn(self, *argv: str, slot: int = 0, lease: float = 60.0, **fields: Any) -> int:
        """Start a job; returns its token. `fields` are those of StartOrder, StepOrder(s) and Spawn; `inc`, `wall` as in the message."""
        token = self.last_token = next(self.tokens)
        deadline = Instant(boottime() + lease, fields.pop("wall", wall() + lease))
        incarnation = fields.pop("inc", self.incarnation)
        spawn = {"env": fields.pop("env", {"PATH": "/usr/bin:/bin"}), "lease_grace": fields.pop("lease_grace", 0.2)}
        steps = fields.pop("steps", (StepOrder(type="command", argv=argv),))
        order = StartOrder(key=AttemptKey(7, token), steps=steps, **{"grace_seconds": 0.5, **fields})
        command = Spawn(order=order, programs=("",) * len(steps), deadline=deadline, **spawn)
        self.send(command, slot=slot, incarnation=incarnation)
        return token

    def send(self, command: Command, *, slot: int = 0, acked: int = 0, incarnation: str = "") -> None:
        """Any command."""
        data = encode_command(command, incarnation=incarnation or self.incarnation, acked=acked)
        self.guards.slots[slot].send(data)

    def receive(self, kind: type[Any], slot: int = 0, seconds: float = 60.0) -> Any:
        """The next report of this kind; output on the way is kept in `blocks`."""
        self.guards.slots[slot].settimeout(seconds)
        while True:
            report = self._next(slot)
            if isinstance(report, kind):
                return report

    def receive_text(self, text: bytes, slot: int = 0) -> None:
        """Until the job has written this."""
        self.guards.slots[slot].settimeout(60)
        while text not in self.text:
            self._next(slot)

    def _next(self, slot: int) -> Report:
        data = self.guards.slots[slot].recv(1 << 18)
        assert data, "the guard has ended"
        self.received += 1
        report = decode_report(data)
        if isinstance(report, LogBlock):
            self.blocks.append(report)
        return report

    def run(self, *argv: str, **fields: Any) -> AttemptEnd:
        """Start a job and wait for its end."""
        self.spawn(*argv, **fields)
        end: AttemptEnd = self.receive(AttemptEnd)
        return end

    @property
    def text(self) -> bytes:
        """All output so far, in order."""
        return b"".join(block.text for block in self.blocks)

    def next_test(self) -> None:
        """Between two tests that share it: the last job ends, and output is read again."""
        self.send(HoldOutput(on=False))
        self.send(_kill(self.last_token))
        end = None
        # While the last job ends the slot is busy.
        while end is None or end.cause == "slot_busy":
            token = self.spawn("true")
            while (end := self.receive(AttemptEnd)).key.token != token:
                pass
        assert end.exit_code == 0, end.reason
        self.blocks.clear()

    def end_zygotes(self) -> None:
        """SIGKILL for a job takes idle zygotes along."""
        self.next_test()
        self.send(_kill(self.spawn("sleep", "60")))
        assert self.receive(AttemptEnd).cause == "cancel"

    def close(self) -> None:
        """Let the guards go and wait for them."""
        self.guards.close()
        if self.guards.supervisor.poll() is None:
            os.kill(self.guards.supervisor.pid, signal.SIGCONT)
        self.guards.supervisor.wait(timeout=60)
        # Guards that were killed leave it; the next ones would not use it, and have no place for secrets.
        shutil.rmtree(payload_home(self.incarnation), ignore_errors=True)


def sh(guard: GuardHarness, text: str, **fields: Any) -> str:
    """The output of a script that ends with 0."""
    guard.blocks.clear()
    end = guard.run("sh", "-c", text, **fields)
    assert (end.exit_code, end.reason) == (0, ""), guard.text
    return guard.text.decode()


def python(guard: GuardHarness, text: str, *, python: str = sys.executable) -> str:
    """The output of a program; without namespaces jobs may not reach the interpreter of the tests."""
    guard.blocks.clear()
    end = guard.run(python, "-I", "-c", text)
    assert end.exit_code == 0, guard.text
    return guard.text.decode()


def supervisor(guard: GuardHarness, slot: int = 0) -> int:
    """It has its name a moment after it was forked."""
    return int(wait_for(lambda: next(iter(p for p in children(guard.guards.supervisor.pid) if slot_of(p) == slot), 0)))


@contextlib.contextmanager
def guard_that_freezes_by(way: str, state: Path) -> Iterator[GuardHarness]:
    """A guard with one slot that freezes by its cgroup, or that may make none."""
    incarnation = _new_incarnation()
    base = cgroup.find_base(f"toban-{incarnation}")
    if way == "cgroup" and base is None:
        pytest.skip("this machine has no writable cgroup2 mount")
    if base is not None:
        # With 0 no slot can have a group of its own.
        (base / "cgroup.max.descendants").write_text("0" if way == "signals" else "max")
    harness = GuardHarness(state, incarnation=incarnation)
    try:
        yield harness
    finally:
        harness.close()
        if base is not None:
            cgroup.remove(base)
