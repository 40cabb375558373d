"""What a guard leaves to the next incarnation: every message that the executor has not said to have on disk, and no other."""

import os
import signal
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toban_executor.decide.log_block import LogBlock
from toban_executor.guard import left
from toban_executor.guard.channel import Channel
from toban_executor.guard.clock import boottime, pause, wall
from toban_executor.guard.keeper import serve
from toban_executor.guard.left import Said
from toban_executor.guard.scratch import Scratch
from toban_executor.guard.tree import become_subreaper, children, start_time
from toban_executor.guard.wire import decode, encode, socket_pair

SAID = st.builds(Said, st.integers(1, 1 << 60), st.binary(min_size=1, max_size=40), st.text("abc=", max_size=10))


def found(guard: Any) -> list[Said]:
    """What is in the guard's file after the executor's end."""
    guard.close()
    file = left.file_of(guard.state / "guards", guard.incarnation, 0)
    return left.read(file) if file.exists() else []


def kinds(said: list[Said]) -> list[Any]:
    """Lines and ends; a start is told only of a job that lasts."""
    messages = [decode(one.data) for one in said]
    every = [one.text if isinstance(one, LogBlock) else one["t"] for one in messages]
    return [kind for kind in every if kind != "started"]


@given(st.lists(SAID, max_size=5), st.integers(0, 400))
def test_what_is_written_is_read_and_a_file_that_was_cut_is_its_beginning(said: list[Said], cut: int) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "x.left"
        left.write(file, said)
        assert left.read(file) == said
        os.truncate(file, min(cut, file.stat().st_size))
        some = left.read(file)
        assert some == said[: len(some)]


def test_everything_is_left_that_nobody_has_on_disk(guard: Any) -> None:
    guard.run("sh", "-c", "echo a; echo b >&2", ticket="dGlja2V0")
    guard.run("true")
    said = found(guard)
    assert kinds(said) in ([b"a\n", b"b\n", "end", "end"], [b"b\n", b"a\n", "end", "end"])
    assert [one.number for one in said] == list(range(1, guard.heard + 1))
    assert [one.ticket for one in said if one.ticket] == ["dGlja2V0"]


def test_what_is_on_disk_is_not_left(guard: Any) -> None:
    guard.run("echo", "a")
    guard.say(t="stored", stored=guard.heard - 1)
    guard.run("true")
    assert kinds(found(guard)) == ["end", "end"]


def test_nothing_is_left_when_all_is_on_disk(guard: Any) -> None:
    guard.run("echo", "a")
    guard.say(t="stored", stored=guard.heard)
    assert found(guard) == []
    assert list((guard.state / "guards").glob("*" + left.SUFFIX)) == []


def test_a_job_that_dies_with_its_executor_leaves_what_it_had_written(guard: Any) -> None:
    guard.spawn("sh", "-c", "echo first; seq 5000; exec sleep 60")
    guard.hear_text(b"5000\n")
    said = found(guard)
    *lines, end = [decode(one.data) for one in said]
    text = b"".join(line.text for line in lines if isinstance(line, LogBlock))
    assert text == b"first\n" + b"".join(b"%d\n" % number for number in range(1, 5001))
    assert isinstance(end, dict) and (end["cause"], end["last_seq"]) == ("executor_gone", 5001)


def test_the_successor_of_a_dead_guard_counts_on_above_it(guard: Any) -> None:
    guard.run("echo", "a")
    [keeper] = children(guard.guards.master.pid)
    os.kill(keeper, signal.SIGKILL)
    losses = guard.hear("lost")["losses"]
    guard.say(t="stored", stored=1 << 40)
    guard.say(t="reset", losses=losses, stored=1)
    guard.run("echo", "b")
    said = found(guard)
    assert kinds(said) == [b"b\n", "end"]
    assert said[0].number == (1 << 32) + 1


class BrokenOnWrite(Channel):
    """The executor dies right after a look whether it has, and the next write is the first to notice."""

    def __init__(self, near: socket.socket, far: socket.socket, left_file: Path) -> None:
        super().__init__(near, left_file=left_file)
        self._far = far

    def send(self, data: bytes, *, ticket: str = "") -> None:
        self._far.close()
        super().send(data, ticket=ticket)


def endless_order(file: Path) -> dict[str, Any]:
    argv = ["sh", "-c", f"echo $$ > {file}; while :; do echo x; done"]
    order = {"t": "spawn", "inc": "i", "run": 7, "token": 1, "env": {"PATH": "/usr/bin:/bin"}, "cwd": "", "payload": ""}
    times = {"timeout": 0, "grace": 0.5, "lease_grace": 0.2, "boot": boottime() + 60, "wall": wall() + 60}
    return {**order, **times, "steps": [{"argv": argv, "program": "", "timeout": 0}]}


def test_a_write_that_fails_is_the_end_of_the_executor_too(tmp_path: Path) -> None:
    """A job that prints all the time must not live on because its guard has noticed by a write."""
    near, far = socket_pair()
    if (keeper := os.fork()) == 0:
        try:
            become_subreaper()
            far.send(encode(endless_order(tmp_path / "pid")))
            scratch = Scratch(directory=tmp_path / "work", payload=tmp_path / "payload")
            channel = BrokenOnWrite(near, far, tmp_path / "x.left")
            serve(channel=channel, incarnation="i", scratch=scratch, group=None)
        finally:
            os._exit(0)
    near.close()
    far.close()
    try:
        ended = boottime() + 5
        while os.waitpid(keeper, os.WNOHANG)[0] != keeper:
            assert boottime() < ended, "its guard goes on, and so does the job"
            pause(0.005)
    finally:
        if start_time(keeper):
            os.kill(keeper, signal.SIGKILL)
    assert not start_time(int((tmp_path / "pid").read_text()))
    last = decode(left.read(tmp_path / "x.left")[-1].data)
    assert isinstance(last, dict) and last["cause"] == "executor_gone"
