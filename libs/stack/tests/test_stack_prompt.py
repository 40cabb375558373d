"""What the person at the prompt sees: usage, wrong numbers, the first run's table, a run that never comes."""

import json
import textwrap
from pathlib import Path

import pytest

from toban_runtime.clock import SystemClock
from toban_stack import __main__ as prompt
from toban_stack import welcome
from toban_stack.errors import StackError
from toban_stack.report import columns

COMMAND = """
    import pathlib, sys
    if sys.argv[1] == "apply":
        sys.exit("examples/hello.yaml: spec.cron: never fires")
    print(pathlib.Path(__file__).with_name("runs.json").read_text())
"""


def run(number: int, state: str, **more: object) -> dict[str, object]:
    return {"id": number, "job": "hello", "state": state, "schedule": "hello", **more}


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[welcome.Command, Path]:
    """A stand-in for the `toban` command, and the file of what it lists."""
    package = tmp_path / "toban_cli"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(textwrap.dedent(COMMAND))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return welcome.Command(home=tmp_path, root=tmp_path), package / "runs.json"


def test_the_first_new_scheduled_run_is_shown(command: tuple[welcome.Command, Path]) -> None:
    toban, listed = command
    first = run(
        3,
        "SUCCEEDED",
        slot="2030-01-01T00:00:05Z",
        executor="executor-1",
        started_at="2030-01-01T00:00:05.100Z",
        finished_at="2030-01-01T00:00:05.350Z",
        last_line="hello",
    )
    demand = {**run(2, "SUCCEEDED"), "schedule": ""}
    listed.write_text(json.dumps([run(5, "ASSIGNED"), run(4, "RUNNING"), first, demand, run(1, "SUCCEEDED")]))
    found = welcome.first_run(toban, {1}, SystemClock())
    assert columns([welcome.HEADER, welcome.row(found)]) == [
        "RUN  JOB    SLOT                  EXECUTOR    SECONDS  LAST LINE OF OUTPUT",
        "3    hello  2030-01-01T00:00:05Z  executor-1  0.250    hello",
    ]


def test_a_run_that_never_succeeds_says_what_was_seen(
    command: tuple[welcome.Command, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    toban, listed = command
    listed.write_text(json.dumps([run(1, "FAILED")]))
    monkeypatch.setattr(welcome, "FIRST_RUN_SECONDS", 0.1)
    with pytest.raises(StackError, match=r"no scheduled run succeeded within 0\.1 s \(run 1 of hello is FAILED\)"):
        welcome.first_run(toban, set(), SystemClock())


def test_the_newest_runs_say_what_is_waited_for(
    command: tuple[welcome.Command, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    toban, listed = command
    listed.write_text(json.dumps([*(run(number, "PENDING") for number in (9, 8, 7)), run(1, "SKIPPED")]))
    monkeypatch.setattr(welcome, "FIRST_RUN_SECONDS", 0.1)
    with pytest.raises(StackError) as caught:
        welcome.first_run(toban, set(), SystemClock())
    assert "(run 9 of hello is PENDING; run 8 of hello is PENDING; run 7 of hello is PENDING); see" in str(caught.value)


def test_a_command_that_fails_is_shown_with_its_words(command: tuple[welcome.Command, Path]) -> None:
    with pytest.raises(StackError, match=r"toban apply -f x failed \(exit 1\):\nexamples/hello.yaml: spec.cron"):
        command[0].output("apply", "-f", "x")


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
    said = capsys.readouterr().err.strip().splitlines()
    assert said == [
        f"make up failed: {tmp_path}/file/home cannot be made (Not a directory): "
        "set TOBAN_HOME to a folder that this account may write"
    ]


def test_status_and_down_where_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOBAN_HOME", str(tmp_path / "home"))
    assert prompt.main(["status"]) == 1
    assert prompt.main(["down"]) == 0
    assert capsys.readouterr().out == "no stack runs here: make up\nnothing was running\n"


def test_a_path_is_told_as_it_is_called_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert welcome.near(tmp_path / ".toban" / "log") == Path(".toban/log")
    assert welcome.near(Path("/elsewhere/log")) == Path("/elsewhere/log")


def test_commands_that_are_told_reach_this_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOBAN_HOME", raising=False)
    assert welcome.typed("make down") == "make down"
    monkeypatch.setenv("TOBAN_HOME", "/srv/my stack")
    assert welcome.typed("make down") == "TOBAN_HOME='/srv/my stack' make down"
