"""The token and the link that `make up` makes, over a stand-in for the `toban` command."""

import json
from pathlib import Path
from stat import S_IMODE

import pytest

from toban_cli.contexts import Context, ContextFile, Contexts
from toban_stack.people import DEV, enter_context, first_link, leave_context, prepare_context
from toban_stack.processes import Program, stop
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile
from toban_stack.toban_command import TobanCommand

# Keeps accounts and tokens in a file, and every call.
COMMAND = """
import json, pathlib, sys
path = pathlib.Path("world.json")
world = json.loads(path.read_text())
words = [word for word in sys.argv[1:] if word != "--direct"]
world["calls"].append(sys.argv[1:])
if words[:2] == ["user", "whoami"]:
    token = json.loads(pathlib.Path("context.json").read_text())["token"]
    path.write_text(json.dumps(world))
    sys.exit(0 if token in world["tokens"] else "UNAUTHENTICATED")
if words[:2] == ["user", "list"]:
    print(json.dumps([{"name": name} for name in world["users"]]))
if words[:2] == ["user", "add"]:
    world["users"].append(words[2])
if words[:3] == ["user", "grant", "local"]:
    world["rules"].append(words[3])
if words[:4] == ["user", "rules", "--user", "local"]:
    print(json.dumps([{"role": role} for role in world["rules"]]))
if words[:4] == ["token", "list", "--user", "local"]:
    print(json.dumps([{"id": 1}] * len(world["tokens"])))
if words[:2] == ["token", "add"]:
    world["tokens"].append("secret-%d" % len(world["tokens"]))
    print(json.dumps({"secret": world["tokens"][-1]}))
if words[:2] == ["user", "state"]:
    print(json.dumps({"has_administrator": "ada" in world["users"]}))
if words[:2] == ["user", "bootstrap"]:
    print(json.dumps({"secret": "5ec4e7"}))
path.write_text(json.dumps(world))
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TobanCommand:
    package = tmp_path / "toban_cli"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(COMMAND)
    (tmp_path / "world.json").write_text(json.dumps({"users": [], "tokens": [], "rules": [], "calls": []}))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return TobanCommand(home=tmp_path, root=tmp_path)


def calls(folder: Path, *words: str) -> int:
    """How often a command was called, with --direct or not."""
    seen = json.loads((folder / "world.json").read_text())["calls"]
    return sum([word for word in call if word != "--direct"][: len(words)] == list(words) for call in seen)


def change(folder: Path, **values: list[str]) -> None:
    world = json.loads((folder / "world.json").read_text())
    (folder / "world.json").write_text(json.dumps(world | values))


def test_the_context_is_private_and_kept_while_it_is_good(command: TobanCommand, tmp_path: Path) -> None:
    prepare_context(command, tmp_path)
    context = tmp_path / "context.json"
    assert json.loads(context.read_text()) == {"user": "local", "token": "secret-0"}
    assert S_IMODE(context.stat().st_mode) == 0o600
    assert calls(tmp_path, "user", "grant", "local", "admin") == 1
    prepare_context(command, tmp_path)
    assert calls(tmp_path, "token", "add") == 1


def test_a_token_that_is_good_no_more_is_replaced_and_rules_stay_as_they_are(
    command: TobanCommand, tmp_path: Path
) -> None:
    prepare_context(command, tmp_path)
    change(tmp_path, tokens=["another"])
    prepare_context(command, tmp_path)
    assert json.loads((tmp_path / "context.json").read_text())["token"] == "secret-1"
    assert calls(tmp_path, "user", "add") == 1 and calls(tmp_path, "user", "grant") == 1


def test_an_account_that_an_interrupted_start_left_gets_its_rule(command: TobanCommand, tmp_path: Path) -> None:
    change(tmp_path, users=["local"])
    prepare_context(command, tmp_path)
    assert calls(tmp_path, "user", "add") == 0 and calls(tmp_path, "user", "grant", "local", "admin") == 1


def test_a_rule_that_was_taken_away_stays_away(command: TobanCommand, tmp_path: Path) -> None:
    prepare_context(command, tmp_path)
    change(tmp_path, rules=[])
    (tmp_path / "context.json").unlink()
    prepare_context(command, tmp_path)
    assert calls(tmp_path, "user", "grant") == 1 and calls(tmp_path, "token", "add") == 2


def test_the_link_is_for_the_first_administrator_only(command: TobanCommand, tmp_path: Path) -> None:
    assert first_link(command, "127.0.0.1:8080") == "http://127.0.0.1:8080/first#5ec4e7"
    change(tmp_path, users=["ada"])
    assert first_link(command, "127.0.0.1:8080") is None
    assert calls(tmp_path, "user", "bootstrap") == 1


SITE = "127.0.0.1:4711"


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContextFile:
    """The contexts of a person whose stack has a token."""
    (tmp_path / "context.json").write_text(json.dumps({"user": "local", "token": "toban_pat_" + "0" * 64}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return ContextFile({"XDG_CONFIG_HOME": str(tmp_path / "config")})


def test_commands_reach_a_stack_by_a_context_until_it_is_down(contexts: ContextFile, tmp_path: Path) -> None:
    enter_context(tmp_path, SITE)
    enter_context(tmp_path, SITE)
    found = contexts.load()
    assert found.current == DEV and found.get(DEV).url == f"http://{SITE}"
    leave_context(tmp_path / "other")
    assert DEV in contexts.load().named, "another stack is down"
    leave_context(tmp_path)
    assert contexts.load() == Contexts()


def test_the_context_of_another_cluster_stays_the_current_one(
    contexts: ContextFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contexts.change() as held:
        held[0] = held[0].with_one("prod", Context(url="https://toban.example.com"), current=True)
    enter_context(tmp_path, SITE)
    assert (contexts.load().current, sorted(contexts.load().named)) == ("prod", [DEV, "prod"])
    assert "TOBAN_CONTEXT=dev chooses it; the current one is prod" in capsys.readouterr().out


def test_a_context_of_that_name_that_leads_elsewhere_is_kept(
    contexts: ContextFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contexts.change() as held:
        held[0] = held[0].with_one(DEV, Context(url="https://dev.example.com"), current=False)
    enter_context(tmp_path, SITE)
    assert contexts.load().get(DEV).url == "https://dev.example.com"
    assert f"set TOBAN_HOME={tmp_path} for this stack" in capsys.readouterr().out
    leave_context(tmp_path)
    assert DEV in contexts.load().named


def test_a_context_of_a_person_is_kept_whatever_its_address_is(
    contexts: ContextFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Such as the end of an SSH tunnel, with the user of a stack on the other side. It replaces that of the stack.
    tunnel = Context(url=f"http://{SITE}", token="toban_pat_" + "1" * 64, user="local")
    enter_context(tmp_path, SITE)
    with contexts.change() as held:
        held[0] = held[0].with_one(DEV, tunnel, current=True)
    enter_context(tmp_path, SITE)
    leave_context(tmp_path)
    assert contexts.load().get(DEV) == tunnel
    assert "`toban context delete dev`" in capsys.readouterr().out


def test_the_context_of_another_stack_is_replaced_when_that_does_not_run(
    contexts: ContextFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "context.json").write_text(json.dumps({"user": "local", "token": "toban_pat_" + "2" * 64}))
    enter_context(other, "127.0.0.1:1")
    with contexts.change() as held:
        held[0] = held[0].with_one(DEV, held[0].get(DEV), current=True)
    program = Program(name="site", role="site", argv=("/bin/sleep", "600"), log=other / "site.log")
    running = StateFile(path=StackPaths(other).state_file).launch(program)
    try:
        enter_context(tmp_path, SITE)
        assert contexts.load().get(DEV).url == "http://127.0.0.1:1"
        assert f"set TOBAN_HOME={tmp_path} for this stack" in capsys.readouterr().out
    finally:
        stop(running)
    enter_context(tmp_path, SITE)
    assert contexts.load().get(DEV).url == f"http://{SITE}"


def test_a_context_that_an_older_release_made_is_known_by_its_token(contexts: ContextFile, tmp_path: Path) -> None:
    made = Context(url="http://127.0.0.1:1", token="toban_pat_" + "0" * 64, user="local")
    with contexts.change() as held:
        held[0] = held[0].with_one(DEV, made, current=True)
    enter_context(tmp_path, SITE)
    assert contexts.load().get(DEV).url == f"http://{SITE}"
