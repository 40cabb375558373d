"""The process of a sandbox and the slot supervisor that asks it: numbers of processes, ends, and a start that fails. As root."""

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_executor.adapters.isolation import abilities_here
from toban_executor.decide.isolation import missing
from toban_executor.guard import sandbox
from toban_executor.guard.process_tree import children
from toban_executor.guard.sandbox import Sandbox
from toban_executor.guard.sandbox_init import SandboxSpec
from toban_executor.guard.spawn import SpawnError
from toban_testing.waiting import wait_for

UID = 61183
pytestmark = pytest.mark.skipif(bool(missing(abilities_here(Path("/tmp")).effective)), reason="needs root")


@pytest.fixture
def own_sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    """A sandbox with namespaces, of the process of the tests."""
    one = Sandbox(spec=SandboxSpec(UID, True, str(tmp_path), str(tmp_path)), poll=select.poll())
    yield one
    one.close()


def start(one: Sandbox, *argv: str) -> int:
    null = os.open("/dev/null", os.O_RDWR)
    try:
        return one.start(program=argv[0], argv=argv, env={}, directory="/", fds=[null] * 4)
    finally:
        os.close(null)


def test_a_program_that_ends_at_once_has_its_number_and_its_end(
    own_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number in the sandbox is that of another process of the machine, and an idle one of the sandbox is not what ended."""
    idle = start(own_sandbox, "/bin/sleep", "60")

    def late(pid: int) -> list[int]:
        wait_for(lambda: any(state(one) == "Z" for one in children(pid)) or children(pid) == [idle])
        return children(pid)

    monkeypatch.setattr(sandbox, "children", late)
    pid = start(own_sandbox, "/bin/false")
    monkeypatch.undo()
    assert pid not in (idle, 0) and state(pid) in ("Z", "")
    ended: list[tuple[int, int]] = []
    wait_for(lambda: ended.extend(own_sandbox.ended()) or ended)
    assert ended == [(pid, 256)] and state(idle) == "S"


def state(pid: int) -> str:
    """As the kernel has it; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def test_a_fork_that_fails_stops_no_later_attempt(own_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(sandbox.os, "fork", fails)
    with pytest.raises(SpawnError, match="Resource temporarily unavailable"):
        own_sandbox.begin()
    monkeypatch.undo()
    for _ in range(2):
        own_sandbox.begin()
        own_sandbox.close()


def test_a_sandbox_is_not_alone_while_it_has_an_end_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaps a process before it tells of it: what looked in between would take the end for lost."""
    one = Sandbox(spec=SandboxSpec(UID, False, str(tmp_path), str(tmp_path)), poll=select.poll())
    # The process of the tests has other children, too.
    monkeypatch.setattr(sandbox, "children", lambda pid: [one.pid] if pid == os.getpid() else children(pid))
    one.begin()
    assert one.is_alone(set())
    pid = start(one, "/bin/true")
    wait_for(lambda: children(one.pid) == [])
    assert not one.is_alone(set())
    wait_for(lambda: one.ended() == [(pid, 0)])
    assert one.is_alone(set())
    one.close()
