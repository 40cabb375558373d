"""The language gate reports each banned word wherever people read it, and only there."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
GATE = ROOT / "scripts/check-language"


def load_gate() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("check_language", str(GATE))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


gate = load_gate()
VOCABULARY = gate.Vocabulary(gate.WORDS_FILE.read_text(encoding="utf-8"))


def check(path: str, source: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.word) for finding in gate.check_text(path, source, VOCABULARY)]


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        ("def take_up(folder):\n    pass\n", 1, "take up"),
        ("class LogBreath:\n    pass\n", 1, "breath"),
        ("class HTTPRing:\n    pass\n", 1, "ring"),
        ("async def run():\n    async def on_alarm_set(): ...\n", 2, "alarm"),
        ("def f(*, patience: float) -> None: ...\n", 1, "patience"),
        ("x = 1\nself.last_heard = x\n", 2, "heard"),
        ("rests: bool = False\n", 1, "rests"),
        ("HAND_IN_SECONDS = 5.0\n", 1, "hand in"),
        ("import logging as seldom\n", 1, "seldom"),
        ("for walk, _ in rows:\n    pass\n", 1, "walk"),
        ("match row:\n    case [heard, _]:\n        pass\n", 2, "heard"),
        ("log.warning(\n    'loop started anew', loop=name)\n", 2, "anew"),
        ("log.error(f'nobody leads {since} s')\n", 1, "nobody"),
        ("raise Error(\n    'what guards left is '\n    'taken '\n    'up later')\n", 3, "taken up"),
        ("fail('no leader\\nmend: make up')\n", 1, "mend"),
        ("rows = {'mend': hint}\n", 1, "mend"),
        ('"""Sealed.\n\nWhoever reads it, waits.\n"""\n', 3, "whoever"),
        ('def f():\n    """Sends what somebody\n    asked for."""\n', 2, "somebody"),
        ("x = 1  # surely\n", 1, "surely"),
        ("# what the journal lays\n# down\nx = 1\n", 1, "lays down"),
        ("#!/usr/bin/env python3\nmends = 1\n", 2, "mends"),
    ],
)
def test_python_names_texts_docstrings_and_comments(source: str, line: int, word: str) -> None:
    path = "scripts/gen-docs" if source.startswith("#!") else "libs/store/src/toban_store/runs.py"
    assert check(path, source) == [(line, word)]


@pytest.mark.parametrize(
    ("path", "source", "line", "word"),
    [
        ("proto/v1/logs.proto", "message Finding {\n  string mend = 4;\n}\n", 2, "mend"),
        ("proto/v1/logs.proto", "// Nobody calls\n", 1, "nobody"),
        ("runs.sql", "SELECT 1;  -- name: seldom_read\n", 1, "seldom"),
        ("runs.sql", "/* what\n   rests */ SELECT 1;\n", 2, "rests"),
        ("runs.sql", "-- what guards hand\n-- in\nSELECT 1;\n", 1, "hand in"),
        ("web/templates/run.html", "<p>{{ check.mend }}</p>\n", 1, "mend"),
        ("web/locales/en.json", '{\n "site.asks": "asks nobody"\n}\n', 2, "nobody"),
        ("docs/logs.md", "# Logs\n\nSince nobody\nreads it.\n", 3, "nobody"),
        ("docs/logs.md", "An attempt takes\nup the lines.\n", 1, "takes up"),
        ("deploy/docker/start", "#!/bin/sh\n# for whoever starts it\n", 2, "whoever"),
    ],
)
def test_other_files(path: str, source: str, line: int, word: str) -> None:
    assert check(path, source) == [(line, word)]


@pytest.mark.parametrize("path", ["executor/take_up.py", "src/toban_runtime/breath/__init__.py"])
def test_names_of_modules_and_packages(path: str) -> None:
    assert len(check(path, "x = 1\n")) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("a.py", "for folder in os.walk(root):\n    ast.walk(tree)\n"),
        ("a.py", "'''As os.walk, ast.walk and Path.walk do.'''\n"),
        ("a.py", 'account = pwd.getpwnam("nobody")  # `nobody` has no shell\n'),
        ("a.py", "string, remedy, commend, amends, overheard, boardwalk = rows\n"),
        ("a.py", "f('on the one hand', in_order)\nx = 'take'; up = 1\n"),
        ("a.py", "# A ring buffer; tries take up to 3 s.\n"),
        ("runs.sql", "SELECT alarm FROM ring;\n"),
    ],
)
def test_legitimate_uses(path: str, source: str) -> None:
    assert check(path, source) == []


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("libs/a/tests/test_a.py", "async def test_nobody_leads():\n    pass\n", [(1, "nobody")]),
        ("tests/e2e/test_a.py", "class Heard:\n    pass\n", [(1, "heard")]),
        ("services/a/tests/test_walk.py", "x = 1\n", [(1, "walk")]),
        ("libs/a/tests/test_a.py", '"""What nobody reads."""\nheard = "nobody leads"  # anew\n', []),
        ("docs/tests/a.md", "nobody\n", [(1, "nobody")]),
        ("libs/a/src/a/tests.py", "heard = 1\n", [(1, "heard")]),
    ],
)
def test_of_tests_the_names_of_modules_functions_and_classes(
    path: str, source: str, found: list[tuple[int, str]]
) -> None:
    assert check(path, source) == found


def test_a_legitimate_use_excuses_only_itself() -> None:
    assert check("a.py", "# os.walk, not a walk of ours\n") == [(1, "walk")]
    assert check("a.py", 'x = "nobody leads"\n') == [(1, "nobody")]


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, GATE, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_command_fails_on_a_finding_and_passes_without(tmp_path: Path) -> None:
    package = tmp_path / "libs/a"
    package.mkdir(parents=True)
    (package / "plain.py").write_text("x = 1\n")
    assert run("libs", cwd=tmp_path).returncode == 0
    (package / "bad.py").write_text("# nobody\n# nobody\n")
    (package / "bad_pb2.py").write_text("# nobody\n")
    found = run("libs", cwd=tmp_path)
    assert found.returncode == 1
    assert found.stdout.splitlines()[:1] == [
        "libs/a/bad.py:1: 'nobody': better no process, no leader, no client: name the subject"
    ]
    assert found.stdout.endswith("language: 2 files, 2 findings\n")
    assert "    2 libs/a\n" in run("--count", "libs", cwd=tmp_path).stdout
