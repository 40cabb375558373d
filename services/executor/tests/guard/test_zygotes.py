"""Zygotes that end: killed, stopped, unfit, changed, too old or too large; no step is lost with them, and none runs twice."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.decide.guard_types import Kill
from toban_executor.decide.models import AttemptEnd
from toban_executor.decide.warm import WarmLimits, WarmNote
from toban_executor.guard.process_tree import children, descendants
from toban_testing.waiting import wait_for


def test_a_step_outlives_its_zygote(warm: Any) -> None:
    assert warm.run("parent").exit_code == 5
    assert descendants(warm.supervisor) == []
    assert warm.report()["payload"] == {}


def test_a_zygote_that_is_stopped_does_not_hide_the_end(warm: Any) -> None:
    """It is killed, and its fork is reaped by the supervisor."""
    end = warm.run("stops_parent")
    assert (end.exit_code, end.cause) == (0, "")
    assert descendants(warm.supervisor) == []


def test_an_idle_zygote_that_is_stopped_is_replaced_by_a_cold_start(warm: Any) -> None:
    zygote = warm.report()["loaded_by"]
    os.kill(zygote, signal.SIGSTOP)
    report = warm.report()
    assert report["loaded_by"] == report["pid"]
    assert b"this step starts without its zygote" in warm.guard.text


def test_an_idle_zygote_that_was_killed_is_replaced(warm: Any) -> None:
    zygote = warm.report()["loaded_by"]
    os.kill(zygote, signal.SIGKILL)
    wait_for(lambda: not warm.zygotes)
    assert warm.report()["loaded_by"] not in (zygote, 0)


def slow_module(folder: Path, mark: Path) -> None:
    """A module whose import waits until it is let go."""
    text = f"import os, time\nopen({str(mark)!r}, 'w').close()\nwhile os.path.exists({str(mark)!r}): time.sleep(0.01)\n"
    (folder / "slow.py").write_text(text)


def test_a_zygote_that_is_killed_while_it_imports(warm: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    slow_module(warm.folder, mark)
    warm.guard.blocks.clear()
    warm.spawn("report", preload="slow")
    wait_for(mark.exists)
    mark.rename(tmp_path / "other")
    mark.touch()
    os.kill(warm.zygotes[0], signal.SIGKILL)
    end = warm.guard.receive(AttemptEnd)
    assert end.exit_code == 0
    assert b"without its zygote: it has ended" in warm.guard.text
    assert warm.guard.text.count(b'"payload"') == 1


@pytest.mark.parametrize("grace", [0.0, 5.0])
def test_a_kill_while_it_imports(warm: Any, tmp_path: Path, grace: float) -> None:
    mark = tmp_path / "mark"
    slow_module(warm.folder, mark)
    token = warm.spawn("report", preload="slow")
    wait_for(mark.exists)
    warm.guard.send(Kill(token=token, cause="cancel", reason="asked", grace=grace))
    end = warm.guard.receive(AttemptEnd)
    assert (end.cause, end.reason) == ("cancel", "asked")
    assert b"payload" not in warm.guard.text and descendants(warm.supervisor) == []


def test_the_lease_ends_while_it_imports(warm: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    slow_module(warm.folder, mark)
    end = warm.run("report", preload="slow", lease=0.6)
    assert end.cause == "lease" and b"payload" not in warm.guard.text
    assert descendants(warm.supervisor) == []


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import no_such", b"ModuleNotFoundError: No module named 'no_such'"),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(5,), daemon=True).start()", b"threads"),
        ("import subprocess\nsubprocess.Popen(['sleep', '1'])", b"processes"),
        ("import os\nos._exit(3)", b"it has ended"),
    ],
)
def test_imports_that_cannot_be_shared_start_cold(warm: Any, module: str, words: bytes) -> None:
    (warm.folder / "bad.py").write_text(module + "\n")
    report = warm.report(preload="bad")
    assert report["loaded_by"] == report["pid"]
    assert words in warm.guard.text
    wait_for(lambda: descendants(warm.supervisor) == [])


# ---- how long they stay


@pytest.fixture
def limited_warm(guard_harness: Any, tmp_path: Path, folder: Path, warm_kit: Any) -> Iterator[Any]:
    """Makes a guard with other limits."""
    made: list[Any] = []

    def make(**limits: Any) -> Any:
        made.append(warm_kit(guard_harness(tmp_path, 1, WarmLimits(**limits)), folder))
        return made[-1]

    yield make
    for one in made:
        one.guard.close()


def note(warm: Any) -> WarmNote:
    found = warm.guard.receive(WarmNote)
    assert isinstance(found, WarmNote)
    return found


def test_changed_code_makes_a_new_zygote(warm: Any) -> None:
    first = warm.report()
    (warm.folder / "shop.py").write_text((warm.folder / "shop.py").read_text().replace('"cwd":', '"new": 1, "cwd":'))
    second = warm.report()
    assert second["new"] == 1 and second["loaded_by"] != first["loaded_by"]
    assert second["ppid"] == second["loaded_by"] and b"without its zygote" not in warm.guard.text


def test_limits_end_zygotes_and_are_counted(limited_warm: Any) -> None:
    warm = limited_warm(forks=2)
    first, second, third = (warm.report()["loaded_by"] for _ in range(3))
    assert first == second != third


@pytest.mark.parametrize(("limits", "reason"), [({"memory_mb": 1}, "memory"), ({"idle_seconds": 0.2}, "idle")])
def test_memory_and_idle_time(limited_warm: Any, limits: dict[str, Any], reason: str) -> None:
    warm = limited_warm(**limits)
    warm.spawn("report")
    ended: dict[str, int] = {}
    forks = 0
    while not ended:
        found = note(warm)
        ended, forks = dict(found.ended), forks + found.forks
    assert (ended, found.keys, forks) == ({reason: 1}, (), 1)
    wait_for(lambda: descendants(warm.supervisor) == [])


def test_the_oldest_gives_way(limited_warm: Any) -> None:
    warm = limited_warm(zygotes=1)
    first = warm.report(env={"MARK": "a"})
    second = warm.report(env={"MARK": "b"})
    assert first["loaded_by"] != second["loaded_by"] and second["ppid"] == second["loaded_by"]
    wait_for(lambda: warm.zygotes == [second["loaded_by"]])


def test_without_zygotes_everything_is_cold(limited_warm: Any) -> None:
    warm = limited_warm(zygotes=0)
    report = warm.report()
    assert report["loaded_by"] == report["pid"]


def test_nothing_starts_twice_when_a_zygote_has_left_processes(warm: Any, tmp_path: Path) -> None:
    """It was killed, and whether one of the processes is its fork cannot be known."""
    mark = tmp_path / "mark"
    slow_module(warm.folder, mark)
    text = (warm.folder / "slow.py").read_text()
    (warm.folder / "slow.py").write_text("import subprocess\nsubprocess.Popen(['sleep', '1000'])\n" + text)
    warm.guard.blocks.clear()
    warm.spawn("report", preload="slow", grace_seconds=0.2)
    wait_for(mark.exists)
    [zygote] = warm.zygotes
    assert children(zygote)
    os.kill(zygote, signal.SIGKILL)
    end = warm.guard.receive(AttemptEnd)
    assert (end.exit_code, end.signal) == (None, signal.SIGKILL)
    assert b"it is not started again" in warm.guard.text and b"payload" not in warm.guard.text
    assert descendants(warm.supervisor) == []
