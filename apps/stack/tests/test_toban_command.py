"""The `toban` command of `make up`: which runs it lists, its failures, and commands spelt for the prompt."""

from pathlib import Path

import pytest

from toban_domain.run import RunState
from toban_stack.errors import StackError
from toban_stack.toban_command import TobanCommand, typed

COMMAND = """
import json, sys
if sys.argv[1] == "apply":
    sys.exit("examples/hello.yaml: spec.cron: never fires")
if sys.argv[1:3] == ["run", "start"]:
    if sys.argv[3] == "off":
        sys.exit("job 'off' is disabled")
    sys.exit(print(7))
print(json.dumps([{"arguments": sys.argv[1:], "schedule": "hello"}, {"id": 7, "schedule": ""}]))
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TobanCommand:
    """A command that answers with its arguments, in place of the real one."""
    package = tmp_path / "toban_cli"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(COMMAND)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return TobanCommand(home=tmp_path, root=tmp_path)


def test_scheduled_runs_in_given_states_are_listed(command: TobanCommand) -> None:
    (run,) = command.runs(RunState.PENDING, RunState.RUNNING, limit=7)
    filters = ["--state", "PENDING", "--state", "RUNNING"]
    assert run["arguments"] == ["run", "list", "--limit", "7", *filters, "-o", "json"]


def test_a_run_that_was_started_here_is_listed_beside_scheduled_ones(command: TobanCommand) -> None:
    command.start("off")
    assert [run["schedule"] for run in command.runs()] == ["hello"]
    command.start("hello")
    assert [run["schedule"] for run in command.runs()] == ["hello", ""]


def test_a_command_that_fails_is_shown_with_its_error(command: TobanCommand) -> None:
    with pytest.raises(StackError, match=r"toban apply -f x failed \(exit 1\):\nexamples/hello.yaml: spec.cron"):
        command.output("apply", "-f", "x")


def test_without_a_clone_printed_commands_are_those_of_the_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TOBAN_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    module = str(tmp_path / "lib/python3.12/site-packages/toban_stack/toban_command.py")
    assert typed("make down", module) == "toban dev down"
    assert typed("make up", module) == "toban dev"
    assert typed("scripts/toban run list", module) == "toban run list"
    monkeypatch.setenv("TOBAN_HOME", "/srv/stack")
    assert typed("scripts/toban run list", module) == "TOBAN_HOME=/srv/stack toban run list"


def test_printed_commands_reach_this_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOBAN_HOME", raising=False)
    assert typed("make down") == "make down"
    monkeypatch.setenv("TOBAN_HOME", "/srv/my stack")
    assert typed("make down") == "TOBAN_HOME='/srv/my stack' make down"
