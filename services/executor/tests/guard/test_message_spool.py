"""What a guard leaves to the next incarnation: every message that the executor has not said to have on disk, and no other."""

import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard_types import Acknowledge, AttemptStart, Reset, SlotLost, Spawn
from toban_executor.decide.models import AttemptEnd, StartOrder, StepOrder
from toban_executor.decide.warm import WarmLimits
from toban_executor.guard import message_spool
from toban_executor.guard.channel import Channel
from toban_executor.guard.clock import boottime, wall
from toban_executor.guard.message_spool import SpooledMessage
from toban_executor.guard.process_tree import become_subreaper, children, start_time
from toban_executor.guard.protocol import decode_report, encode_command, socket_pair
from toban_executor.guard.slot_supervisor import serve
from toban_executor.guard.work_dir import WorkDir
from toban_fencing.executor_lease import Instant
from toban_testing.waiting import wait_for

SAID = st.builds(SpooledMessage, st.integers(1, 1 << 60), st.binary(min_size=1, max_size=40), st.binary(max_size=10))


def found(guard: Any) -> list[SpooledMessage]:
    """What is in the guard's file after the executor's end."""
    guard.close()
    file = message_spool.file_of(guard.state / "guards", guard.incarnation, 0)
    return message_spool.read(file) if file.exists() else []


def kinds(said: list[SpooledMessage]) -> list[Any]:
    """Lines and ends; a start is told only of a job that lasts."""
    reports = [decode_report(one.data) for one in said]
    every = [one.text if isinstance(one, LogBlock) else type(one) for one in reports]
    return [kind for kind in every if kind is not AttemptStart]


@given(st.lists(SAID, max_size=5), st.integers(0, 400))
def test_what_is_written_is_read_and_a_file_that_was_cut_is_its_beginning(said: list[SpooledMessage], cut: int) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "x.left"
        message_spool.write(file, said)
        assert message_spool.read(file) == said
        os.truncate(file, min(cut, file.stat().st_size))
        some = message_spool.read(file)
        assert some == said[: len(some)]


def test_everything_is_spooled_that_no_executor_has_on_disk(guard: Any) -> None:
    guard.run("sh", "-c", "echo a; echo b >&2", ticket=b"ticket")
    guard.run("true")
    said = found(guard)
    assert kinds(said) in ([b"a\n", b"b\n", AttemptEnd, AttemptEnd], [b"b\n", b"a\n", AttemptEnd, AttemptEnd])
    assert [one.number for one in said] == list(range(1, guard.received + 1))
    assert [one.ticket for one in said if one.ticket] == [b"ticket"]


def test_what_is_on_disk_is_not_left(guard: Any) -> None:
    guard.run("echo", "a")
    guard.send(Acknowledge(), acked=guard.received - 1)
    guard.run("true")
    assert kinds(found(guard)) == [AttemptEnd, AttemptEnd]


def test_nothing_is_left_when_all_is_on_disk(guard: Any) -> None:
    guard.run("echo", "a")
    guard.send(Acknowledge(), acked=guard.received)
    assert found(guard) == []
    assert list((guard.state / "guards").glob("*" + message_spool.SUFFIX)) == []


def test_a_job_that_dies_with_its_executor_leaves_what_it_had_written(guard: Any) -> None:
    guard.spawn("sh", "-c", "echo first; seq 5000; exec sleep 60")
    guard.receive_text(b"5000\n")
    said = found(guard)
    *lines, end = [decode_report(one.data) for one in said]
    text = b"".join(line.text for line in lines if isinstance(line, LogBlock))
    assert text == b"first\n" + b"".join(b"%d\n" % number for number in range(1, 5001))
    assert isinstance(end, AttemptEnd) and (end.cause, end.last_seq) == ("executor_gone", 5001)


def test_the_successor_of_a_dead_guard_counts_on_above_it(guard: Any) -> None:
    guard.run("echo", "a")
    [keeper] = children(guard.guards.supervisor.pid)
    os.kill(keeper, signal.SIGKILL)
    losses = guard.receive(SlotLost).losses
    guard.send(Acknowledge(), acked=1 << 40)
    guard.send(Reset(losses), acked=1)
    guard.run("echo", "b")
    said = found(guard)
    assert kinds(said) == [b"b\n", AttemptEnd]
    assert said[0].number == (1 << 32) + 1


class BrokenOnWrite(Channel):
    """The executor dies right after a look whether it has, and the next write is the first to notice."""

    def __init__(self, near: socket.socket, far: socket.socket, spool_file: Path, kind: type) -> None:
        super().__init__(near, spool_file=spool_file)
        self._far = far
        self._kind = kind

    def send(self, data: bytes, *, ticket: bytes = b"") -> None:
        if isinstance(decode_report(data), self._kind):
            self._far.close()
        super().send(data, ticket=ticket)


def endless_order(file: Path) -> Spawn:
    step = StepOrder(type="command", argv=("sh", "-c", f"echo $$ > {file}; while :; do echo x; done"))
    order = StartOrder(key=AttemptKey(7, 1), steps=(step,), grace_seconds=0.5)
    deadline = Instant(boottime() + 60, wall() + 60)
    return Spawn(order=order, programs=("",), env={"PATH": "/usr/bin:/bin"}, deadline=deadline, lease_grace=0.2)


def test_a_write_that_fails_is_the_end_of_the_executor_too(tmp_path: Path) -> None:
    """A job that prints all the time must not live on because its guard has noticed by a write."""
    near, far = socket_pair()
    if (keeper := os.fork()) == 0:
        try:
            become_subreaper()
            far.send(encode_command(endless_order(tmp_path / "pid"), incarnation="i", acked=0))
            work_dir = WorkDir(directory=tmp_path / "work", payload=tmp_path / "payload", socket=tmp_path / "socket")
            channel = BrokenOnWrite(near, far, tmp_path / "x.left", LogBlock)
            serve(channel=channel, incarnation="i", work_dir=work_dir, group=None, warm=WarmLimits())
        finally:
            os._exit(0)
    near.close()
    far.close()
    try:
        wait_for(lambda: os.waitpid(keeper, os.WNOHANG)[0] == keeper)
    finally:
        if start_time(keeper):
            os.kill(keeper, signal.SIGKILL)
    assert not start_time(int((tmp_path / "pid").read_text()))
    last = decode_report(message_spool.read(tmp_path / "x.left")[-1].data)
    assert isinstance(last, AttemptEnd) and last.cause == "executor_gone"


def test_the_last_report_of_a_slot_may_be_the_one_that_finds_the_executor_gone(tmp_path: Path) -> None:
    """The slot is free then: nothing else would wake its guard."""
    near, far = socket_pair()
    if (supervisor := os.fork()) == 0:
        try:
            become_subreaper()
            order = endless_order(tmp_path / "pid")
            steps = (StepOrder(type="command", argv=("/bin/true",)),)
            spawn = order._replace(order=replace(order.order, steps=steps))
            far.send(encode_command(spawn, incarnation="i", acked=0))
            work_dir = WorkDir(directory=tmp_path / "work", payload=tmp_path / "payload", socket=tmp_path / "socket")
            serve(
                channel=BrokenOnWrite(near, far, tmp_path / "x.left", AttemptEnd),
                incarnation="i",
                work_dir=work_dir,
                group=None,
                warm=WarmLimits(),
            )
        finally:
            os._exit(0)
    near.close()
    far.close()
    try:
        wait_for(lambda: os.waitpid(supervisor, os.WNOHANG)[0] == supervisor)
    finally:
        if start_time(supervisor):
            os.kill(supervisor, signal.SIGKILL)
    last = decode_report(message_spool.read(tmp_path / "x.left")[-1].data)
    assert isinstance(last, AttemptEnd) and last.exit_code == 0
