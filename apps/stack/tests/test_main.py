"""The prompt of `python -m toban_stack`: usage, wrong numbers of processes, folders that cannot be made, nothing running."""

import subprocess
import sys
from pathlib import Path

import pytest

from toban_stack import __main__ as prompt


@pytest.mark.parametrize("arguments", [[], ["sideways"], ["up", "down"]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert prompt.main(arguments) == 2
    assert "usage: python -m toban_stack up|down|status" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["0", "65", "two", "-1"])
def test_wrong_numbers_of_processes(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOBAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EXECUTORS", wrong)
    assert prompt.main(["up"]) == 1
    assert f"EXECUTORS={wrong!r} is not a number of processes: give one from 1 to 64" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_a_home_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TOBAN_HOME", str(tmp_path / "file" / "home"))
    assert prompt.main(["up"]) == 1
    printed = capsys.readouterr().err.strip().splitlines()
    assert printed == [
        f"make up failed: {tmp_path}/file/home cannot be made (Not a directory): "
        "set TOBAN_HOME to a folder that this account may write"
    ]


def test_status_and_down_where_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOBAN_HOME", str(tmp_path / "home"))
    assert prompt.main(["status"]) == 1
    assert prompt.main(["down"]) == 0
    start = f"TOBAN_HOME={tmp_path}/home make up"
    assert capsys.readouterr().out == f"no stack is running here: {start}\nnothing was running\n"


def test_a_reader_that_has_left_stops_nothing() -> None:
    program = (
        "from toban_stack.console import print_lines\nfor _ in range(9): print_lines('x' * 99999)\nraise SystemExit(3)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as printing:
        assert printing.stdout and printing.stderr
        printing.stdout.close()
        assert printing.stderr.read() == b""
    assert printing.returncode == 3


def test_a_bad_name_of_a_group_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOBAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EXECUTOR_GROUPS", "pci, A b")
    assert prompt.main(["up"]) == 1
    assert "make up failed: 'A b' is not a name of an executor group" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()
