"""How mistakes are printed: one line or one JSON object, with the exit code that docs/errors.md gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from toban_cli.docs_generator import commands
from toban_cli.main import _ALONE, _NOUNS, EXIT_INTERRUPTED, EXIT_USAGE, _command_words, build
from toban_cli.report import wants_json
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.version import VERSION

Toban = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")


def test_every_code_has_its_documented_exit_code(cluster: Any, toban: Toban, subtests: pytest.Subtests) -> None:
    for code in ErrorCode:
        with subtests.test(code.value):
            row = re.search(rf"^\| `{code}` \| (\d+) \|", ERRORS, re.MULTILINE)
            assert row is not None, f"docs/errors.md has no row for {code}"
            explained = re.search(rf"^\| {row[1]} \| ", ERRORS, re.MULTILINE)
            assert explained, f"docs/errors.md does not explain exit code {row[1]}"
            if code is ErrorCode.UNAVAILABLE:
                # Told by the caller's side, which has asked every address by then.
                assert TobanError(code, "x").exit_code == int(row[1])
                continue
            cluster.control.answers["CancelRun"] = TobanError(code, "what, where, and the remedy")
            found, out, err = toban("run", "cancel", "1", "--errors", "json")
            assert (found, out) == (int(row[1]), "")
            printed = json.loads(err)["error"]
            assert (printed["code"], printed["exit_code"]) == (code, found)


def test_every_documented_code_is_there() -> None:
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", ERRORS, re.MULTILINE)) == set(ErrorCode)
    for code in (EXIT_USAGE, EXIT_INTERRUPTED):
        assert re.search(rf"^\| {code} \| ", ERRORS, re.MULTILINE)


@pytest.mark.parametrize(
    ("argv", "environment", "as_json"),
    [
        ((), {}, False),
        (("-o", "json"), {}, True),
        (("-ojson",), {}, True),
        (("--output=yaml",), {}, True),
        (("-o", "table"), {}, False),
        (("-o", "name"), {}, False),
        (("--errors", "json"), {}, True),
        (("--errors=json", "-o", "table"), {}, True),
        (("--errors", "text", "-o", "json"), {}, False),
        ((), {"TOBAN_ERRORS": "json"}, True),
        (("-o", "json"), {"TOBAN_ERRORS": "text"}, False),
        (("--errors", "text"), {"TOBAN_ERRORS": "json"}, False),
        (("-p", "o=json"), {}, False),
        (("--", "-o", "json"), {}, False),
        (("-o",), {}, False),
    ],
)
def test_when_errors_are_json(argv: tuple[str, ...], environment: dict[str, str], as_json: bool) -> None:
    assert wants_json(["run", "list", *argv], environment) is as_json


@pytest.mark.parametrize("argv", [("rum",), ("run", "gte"), ("run", "get"), ("run", "get", "x"), ("--errors", "jsn")])
def test_mistakes_in_the_arguments_are_json_too(
    toban: Toban, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TOBAN_ERRORS", "json")
    code, out, err = toban(*argv)
    assert (code, out) == (64, "")
    if argv != ("--errors", "jsn"):
        assert json.loads(err)["error"]["code"] == "USAGE"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("rn",), "No such command 'rn'. Did you mean 'run'? See `toban --help`"),
        (("run", "lst"), "No such command 'lst'. Did you mean 'lost', 'list'? See `toban run --help`"),
        (("run", "list", "--limt", "3"), "No such option: --limt. Did you mean --limit? See `toban run list --help`"),
        (("run", "list", "-o", "jsn"), "'jsn' is not known, did you mean json? See `toban run list --help`"),
        (("run", "list", "-o", "x"), "'x' is not known, use table, wide, json, yaml, name."),
        (("run", "list", "-n", "0"), "'0' is out of range, use 1 … 10000."),
        (("run", "list", "-n", "many"), "'many' is not a whole number."),
        (("run", "get", "-5"), "No such option: -5."),
        (("run", "get", "0"), "'0' is out of range, use 1 or more."),
        (("run", "get", "9" * 20), "is out of range, use 9223372036854775807 or less."),
        (("run", "list", "-n", "9" * 600), "999…' is out of range, use 1 … 10000."),
        (("run", "list", "--state", ""), "'' is not a state, use one of PENDING"),
        (("settings", "set", "x", "-5"), "No such option: -5. Put a value that begins with - after `--`"),
        (("run", "list", "-w", "0.01"), "is out of range, use 0.1 … 86400."),
        (("run", "list", "-w", "nan"), "'nan' is out of range"),
        (("run", "start"), "Missing argument 'JOB'."),
        (("run", "start", "a", "b"), "Got unexpected extra argument"),
        (("run", "start", "a", "--wait=1"), "does not take a value"),
        (("run", "list", "--job"), "requires an argument"),
    ],
)
def test_wrong_usage_says_what_was_meant(toban: Toban, argv: tuple[str, ...], words: str) -> None:
    code, out, err = toban(*argv)
    assert (code, out) == (64, "")
    assert err.startswith("error: ")
    assert words in err
    assert len(err.splitlines()) == 1


def test_validate_refuses_the_schemas_that_apply_refuses(toban: Toban, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    spec = "steps: [{argv: [x]}], result_schema: {type: objekt}, payload_schema: {pattern: '(?=x)'}"
    file.write_text(f"apiVersion: toban/v1\nkind: Job\nmetadata: {{name: j}}\nspec: {{{spec}}}\n")
    code, out, err = toban("validate", "-f", str(file))
    assert (code, out) == (65, "")
    assert "spec.payload_schema.pattern: " in err and "spec.result_schema.type: " in err


@pytest.mark.parametrize("flags", [(), ("--job", "report")])
def test_a_secret_that_is_given_as_an_argument_is_not_repeated(toban: Toban, flags: tuple[str, ...]) -> None:
    code, out, err = toban("secret", "set", "db", "hunter2-Zaphod", *flags)
    assert (code, out) == (64, "")
    assert "a value is never an argument" in err and "give it by stdin (`pass show db | toban secret set NAME`)" in err
    assert "hunter2" not in err


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), max_size=6))
def test_no_words_end_in_a_traceback(words: list[str]) -> None:
    from toban_cli.main import run

    assert run(["run", "nothing", *words]) in (0, 64)


@pytest.mark.parametrize("argv", [(), ("--help",), ("-h",), ("--errors", "text", "-h")])
def test_alone_it_prints_its_help(toban: Toban, argv: tuple[str, ...]) -> None:
    code, out, err = toban(*argv)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: toban")
    assert "toban run start hello --wait --follow\n" in out


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("group show", "group get"),
        ("context show", "context get"),
        ("user remove", "user delete"),
        ("webhook rm", "webhook delete"),
        ("schedule update", "schedule set"),
        ("token create", "token add"),
        ("token create-own", "token add-own"),
    ],
)
def test_an_earlier_verb_is_the_present_one_but_is_not_listed(toban: Toban, earlier: str, now: str) -> None:
    code, out, err = toban(*earlier.split(), "--help")
    assert (code, out, err) == toban(*now.split(), "--help") and code == 0
    noun, verb = earlier.split()
    assert f"  {verb} " not in toban(noun, "--help")[1]
    assert _command_words(["--direct", noun, verb, "secret"]) == now.split()


@pytest.mark.parametrize("group", ["run", "job", "schedule", "executor", "cluster"])
def test_a_noun_alone_prints_its_help(toban: Toban, group: str) -> None:
    assert toban(group) == toban(group, "--help") == toban(group, "-h")


def test_version(toban: Toban) -> None:
    assert toban("--version") == (0, f"toban {VERSION}\n", "")
    places = [
        "VERSION",
        "libs/sdk/src/toban/version.py",
        "deploy/docker/service.Dockerfile",
        "deploy/helm/toban/Chart.yaml",
    ]
    assert [name for name in places if VERSION not in (ROOT / name).read_text(encoding="utf-8")] == []
    for project in ROOT.glob("*/*/pyproject.toml"):
        assert '\npath = "../../VERSION"\n' in project.read_text(encoding="utf-8"), project


def test_a_mistake_of_ours_is_one_line(toban: Toban, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("toban_cli.manifest_files.read_documents", broken)
    code, out, err = toban("validate", "-f", ".")
    assert (code, out) == (70, "")
    assert err.startswith(
        "error: toban itself failed (ZeroDivisionError: by zero); run it again with TOBAN_TRACEBACK=1"
    )
    assert len(err.splitlines()) == 1
    monkeypatch.setenv("TOBAN_TRACEBACK", "1")
    _, _, err = toban("validate", "-f", ".")
    assert "Traceback" in err
    assert "in broken" in err


def test_a_terminal_without_unicode_gets_question_marks(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("apiVersion: toban/v1\nkind: Job\nmetadata: {name: ä}\nspec: {}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "toban_cli", "validate", "-f", str(file)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=60,
    )
    assert done.returncode == 65
    assert b"Traceback" not in done.stderr
    assert b"'?' is not a name" in done.stderr


@pytest.mark.parametrize("first", [*_ALONE, *_NOUNS])
def test_the_part_of_a_command_is_that_of_the_whole_tree(first: str) -> None:
    part, whole = (dict(commands(typer.main.get_command(build(name)), "toban")) for name in (first, ""))
    of_it = [path for path in whole if path.split()[1:2] in ([], [first])]
    assert list(part) == of_it
    assert [command_facts(part[path]) for path in of_it[1:]] == [command_facts(whole[path]) for path in of_it[1:]]


def test_the_help_of_the_whole_needs_no_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for first in ("--help", ""):
        build(first)(args=["--help"], prog_name="toban", standalone_mode=False)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and all(f"  {noun} " in texts[0] for noun in _NOUNS)


def command_facts(command: Any) -> Any:
    """What a caller sees of a command."""
    return command.help, command.examples, [(param.name, param.opts) for param in command.params]
