"""Generated documents are current; each default and example of the reference is what the readers take; each example of a command parses."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from toban_cli.docs_generator import commands
from toban_cli.main import build
from toban_cli.manifest_files import _resolved
from toban_manifests.read import Document, Manifest, find_problems
from toban_manifests.reference import SCHEMA, Field, kinds, metadata
from toban_schedule import problems

Toban = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]
RULES = ("interval_seconds", "every_n_minutes", "hourly_at_minute", "daily_at", "weekly_at", "cron")
SPECS: dict[str, dict[str, Any]] = {
    "Job": {"steps": [{"argv": ["true"]}]},
    "Schedule": {"job": "x", "interval_seconds": 5},
    "EventTrigger": {"event_type": "a.b", "job": "x"},
}
# The least that an item of a list has.
LISTED: dict[str, dict[str, Any]] = {
    "steps": {"argv": ["true"]},
    "secrets": {"name": "x"},
    "notify": {"webhook": "x"},
    "mounts": {"source": "/a", "target": "/b"},
}
# What a rule of `notify` needs for each of these keys.
OF_NOTIFY = {"long_after_seconds": {"on": ["long"]}, "late_after_seconds": {"on": ["late"]}}
# What a step needs for each of these keys.
OF_TYPE: dict[str, dict[str, Any]] = {
    "callable python_path interpreter warm": {"type": "python", "callable": "a:b"},
    "preload": {"type": "python", "callable": "a:b", "warm": True},
    "command args project settings": {
        "type": "django",
        "command": "a",
        "project": "/srv",
        "interpreter": "/srv/python",
    },
    "worker_type lock_ttl_seconds": {"type": "external", "worker_type": "w"},
    "http": {"type": "http"},
    "container": {"type": "container"},
    "kubernetes": {"type": "kubernetes"},
}
# Keys that belong together.
PAIRED = {"limit_key": "customer", "limit_per_key": 1}
# Keys that another one must allow.
NEEDED: dict[str, dict[str, Any]] = {
    "lease_loss_grace_seconds": {"on_lease_loss": "kill"},
    "repeatable": {"concurrency": {"dedupe_keys": ["x"]}},
    "expect_success_within_seconds": {"notify": [{"webhook": "x", "on": ["missing"]}]},
    "lost_after_seconds": {"on_lease_loss": "continue", "idempotent": True},
}
TREE: Any = typer.main.get_command(build())
COMMANDS = [(path, one) for path, one in commands(TREE, "toban") if path != "toban"]


def keys(fields: tuple[Field, ...], before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Field]]:
    for one in fields:
        yield (*before, one.key), one
        yield from keys(one.fields, (*before, one.key))


KEYS = [
    (kind, path, one)
    for kind, spec in kinds().items()
    for path, one in (*keys(metadata(), ("metadata",)), *keys(spec.fields, ("spec",)))
]
NAMES = [f"{kind} {'.'.join(path)}" for kind, path, _ in KEYS]


def _give_type(step: dict[str, Any], path: tuple[str, ...]) -> None:
    """Make it a step that may have the key."""
    for names, needed in OF_TYPE.items():
        if path[0] in names.split():
            del step["argv"]
            step |= needed
    least_of = {"http": {"url": "https://a.example"}, "container": {"image": "a:1"}, "kubernetes": {"image": "a:1"}}
    for part, least in least_of.items():
        if path[0] == part:
            # Changed in place: the caller has the innermost mapping in hand.
            step.setdefault(part, {}).update(least)


def document(kind: str, path: tuple[str, ...], value: Any) -> Manifest:
    """A small document with one key set, as `toban apply` reads it."""
    body: dict[str, Any] = {"apiVersion": "toban/v1", "kind": kind, "metadata": {"name": "x"}, "spec": {**SPECS[kind]}}
    body["spec"] |= NEEDED.get(path[-1], {})
    if path[-1] in RULES:
        del body["spec"]["interval_seconds"]
    at: Any = body
    for key in path[:-1]:
        at[key] = [dict(LISTED[key])] if key in LISTED else dict(at.get(key) or {})
        at = at[key][0] if key in LISTED else at[key]
    if path[1:2] == ("steps",) and len(path) > 2:
        _give_type(body["spec"]["steps"][0], path[2:])
    if path[-2:] == ("http", "body"):
        at["method"] = "POST"
    if path[-2] == "on_run_end":
        del body["spec"]["event_type"]
        at |= {} if path[-1] == "labels" and value else {"job": "y"}
    if "notify" in path[:-1]:
        at |= OF_NOTIFY.get(path[-1], {})
    if path[-2] == "quiet_hours":
        at |= {"from": "20:00", "until": "06:00"}
    if path[-1] in PAIRED and value:
        at |= PAIRED
    at[path[-1]] = value
    [manifest], found = find_problems([Document("a", _resolved(body, Path("/srv")))], check_rule=problems)
    assert found == []
    return manifest


@pytest.mark.parametrize(("kind", "path", "one"), KEYS, ids=NAMES)
def test_each_example_is_accepted(kind: str, path: tuple[str, ...], one: Field) -> None:
    if one.example:
        document(kind, path, yaml.safe_load(one.example))


def test_each_default_is_what_leaving_the_key_out_means(subtests: pytest.Subtests) -> None:
    for name, (kind, path, one) in zip(NAMES, KEYS, strict=True):
        with subtests.test(name):
            if one.default:
                assert document(kind, path, yaml.safe_load(one.default)) == document(kind, path, None)


@pytest.mark.parametrize("kind", kinds())
def test_the_example_of_each_kind_is_valid(kind: str, toban: Toban, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(kinds()[kind].example)
    assert toban("validate", "-f", str(tmp_path), "-o", "name")[0] == 0


def test_generated_documents_are_current() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "gen-docs", "--check"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": sys.executable},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_document_that_is_not_current_is_told(tmp_path: Path) -> None:
    from toban_cli.docs_generator import main

    (tmp_path / "manifests.md").write_text("<!-- keys of metadata -->\nold\n<!-- end of keys -->\n")
    assert main([str(tmp_path), "--check"]) == 1
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--check"]) == 0
    assert "`labels`" in (tmp_path / "manifests.md").read_text()


def test_every_command_has_help(toban: Toban, subtests: pytest.Subtests) -> None:
    for path, command in COMMANDS:
        with subtests.test(path):
            code, out, err = toban(*path.split()[1:], "--help")
            assert (code, err) == (0, "")
            assert out.startswith(f"Usage: {path} ")
            if not hasattr(command, "commands"):
                assert "Examples:" in out
                assert all(param.help for param in command.params)


def examples() -> Iterator[list[str]]:
    for _, command in COMMANDS:
        for line in getattr(command, "examples", []):
            # What the shell takes before the command sees its words: pipes, redirections, substitutions.
            for part in re.split(r"\||<\(|>", line):
                words = shlex.split(part.replace(")", ""))
                if "toban" in words:
                    yield words[words.index("toban") + 1 :]


@pytest.mark.parametrize("words", list(examples()), ids=" ".join)
def test_every_example_parses(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TOBAN_CONTEXT", "")
    command, args = TREE, list(words)
    while hasattr(command, "commands"):
        command = command.commands[args.pop(0)]
    # Behind xargs there is no argument yet.
    wanted = [param for param in command.params if param.param_type_name == "argument" and param.required]
    command.make_context("toban", args or ["1" for _ in wanted])


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("", 0, "EventTrigger"),
        ("Job", 0, "apiVersion: toban/v1"),
        ("job.steps[].argv", 0, "Default: required for command"),
        ("Schedule.spec.dst.gap", 0, "Default: shift"),
        ("EventTrigger.metadata", 0, "one a kind"),
        ("Job.on_lease_loss", 0, "docs/fencing.md 3.7"),
        ("Jub", 65, "did you mean Job?"),
        ("Job.timeout", 65, "did you mean timeout_seconds?"),
        ("Job.retry.max_retries.x", 65, "nothing is below it"),
    ],
)
def test_explain(toban: Toban, what: str, code: int, words: str) -> None:
    found, out, err = toban("explain", what)
    assert found == code
    assert words in (err if code else out)


def test_the_published_schema_is_printed(toban: Toban) -> None:
    code, out, _ = toban("explain", "--schema")
    assert (code, out) == (0, SCHEMA.read_text(encoding="utf-8"))
    code, _, err = toban("explain", "Job", "--schema")
    assert (code, "prints all kinds" in err) == (64, True)


def test_explain_does_not_load_the_models() -> None:
    heavy = ("pydantic", "yaml", "grpc")
    script = f"import sys; from toban_cli.main import run; run(['explain', 'Job']); sys.exit(','.join(m for m in {heavy} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stderr.strip() == ""
    assert "KEYS OF spec" in done.stdout


def test_every_path_can_be_explained(toban: Toban) -> None:
    from toban_cli.explain import paths

    for path in paths():
        code, out, _ = toban("explain", path)
        assert code == 0
        assert out.strip()


@pytest.mark.parametrize("path", ["Job.steps.argv", "Job.steps[].argv", "Job.steps[0].argv"])
def test_items_of_lists_are_explained(path: str) -> None:
    from toban_cli.explain import explain

    assert "program and arguments" in explain(path)


@pytest.mark.parametrize("path", ["", "Job", "Schedule.dst", "Job.steps"])
def test_explanations_fit_a_narrow_terminal(path: str) -> None:
    from toban_cli.explain import explain

    words = explain(path, 80).partition("Default:")[0] if "." in path else explain(path, 80)
    assert max(map(len, words.splitlines())) <= 80


@pytest.mark.parametrize("path", ["Job..", "Job.", ".", ".retry"])
def test_a_dot_too_many(path: str) -> None:
    from toban_cli.explain import explain
    from toban_domain.errors import TobanError

    with pytest.raises(TobanError, match="a key is missing beside a dot"):
        explain(path)
