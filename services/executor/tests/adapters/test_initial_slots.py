"""With how many slots an incarnation starts, and what happens when that many cannot be started."""

import errno
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.adapters import initial_slots
from toban_executor.adapters.initial_slots import DEFAULT, start_slots
from toban_executor.adapters.state_dir import save_slots, saved_slots
from toban_executor.guard.launch import start_guards


class Machine:
    """Starts as many slots as it is told that it can; the guards are their number."""

    def __init__(self, *, can: int, error: Exception) -> None:
        self.can = can
        self.error = error
        self.tried: list[int] = []

    def start(self, slots: int) -> Any:
        self.tried.append(slots)
        if slots > self.can:
            raise self.error
        return slots


ERRORS = [OSError(errno.EMFILE, "Too many open files"), RuntimeError("the guard ended"), TimeoutError("timed out")]


@pytest.mark.parametrize("error", ERRORS)
def test_slots_that_do_not_start_are_forgotten_for_the_default(tmp_path: Path, error: Exception) -> None:
    save_slots(tmp_path, 300)
    machine = Machine(can=100, error=error)
    assert start_slots(own=None, state_dir=tmp_path, start=machine.start) == (DEFAULT, DEFAULT), "and no more this time"
    assert machine.tried == [300, DEFAULT]
    assert saved_slots(tmp_path) is None


@pytest.mark.parametrize(("kept", "own"), [(None, None), (4, None), (4, 8)])
@pytest.mark.parametrize("error", ERRORS)
def test_no_guards_at_all_are_an_error(tmp_path: Path, kept: int | None, own: int | None, error: Exception) -> None:
    if kept:
        save_slots(tmp_path, kept)
    machine = Machine(can=0, error=error)
    with pytest.raises(TobanError, match=r"do not start .*open files, processes") as caught:
        start_slots(own=own, state_dir=tmp_path, start=machine.start)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    assert machine.tried == [own or kept or DEFAULT]


def test_what_was_kept_and_own_slots_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_slots, "most_slots", lambda: 200)
    machine = Machine(can=1000, error=ERRORS[0])
    assert start_slots(own=None, state_dir=tmp_path, start=machine.start) == (DEFAULT, 200)
    save_slots(tmp_path, 4096)
    assert start_slots(own=None, state_dir=tmp_path, start=machine.start) == (200, 200)
    assert start_slots(own=3, state_dir=tmp_path, start=machine.start) == (3, 3)


def open_now() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def test_guards_that_fail_to_start_leave_no_file_open(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("not a folder")
    before = open_now()
    with pytest.raises(RuntimeError, match="ended while it started"):
        start_guards(incarnation="test", state_dir=state, slots=3)
    assert open_now() == before
