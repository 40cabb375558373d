"""Every test file is run by `make gate` or `make all`, and no marker but `hours` keeps a test out of both."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What must always be checked before or after a landing, beside the files of tests.
WORDS = {"lint", "types", "contracts", "deps", "proto-check", "size", "fuzz", "sbom"}


def words_of(gate: str) -> set[str]:
    """The words of the Makefile that scripts/gate runs as parts of this gate."""
    script = (ROOT / "scripts/gate").read_text()
    [branch] = re.findall(rf"^{gate}\)$(.*?)^  ;;$", script, re.MULTILINE | re.DOTALL)
    words = set(re.findall(r"^  part ([a-z-]+)", branch, re.MULTILINE))
    for names in re.findall(r"for word in ([a-z -]+); do part", branch):
        words |= set(names.split())
    return words


def commands_of(words: set[str]) -> str:
    """The commands behind words of the Makefile, those of their scripts included."""
    listed = subprocess.run(["make", "-n", *sorted(words)], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    scripts = set(re.findall(r"scripts/[a-z-]+", listed)) - {"scripts/gate"}
    return listed + "".join((ROOT / name).read_text() for name in sorted(scripts))


def collected(commands: str) -> set[str]:
    """The files that the calls of pytest in these commands take tests from."""
    files: set[str] = set()
    for arguments in re.findall(r"python -m pytest (.*)", commands):
        words = [word for word in shlex.split(arguments) if word != "$@" and not word.startswith("--junitxml")]
        paths = [str(path) for word in words for path in sorted(ROOT.glob(word)) or [word]]
        command = [sys.executable, "-m", "pytest", *paths, "-n0", "--collect-only", "-qq", "-p", "no:cacheprovider"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        files |= set(re.findall(r"^([\w/-]+/test_\w+\.py)\b", listed, re.MULTILINE))
    return files


@pytest.mark.long
def test_each_file_is_in_a_gate() -> None:
    words = words_of("gate") | words_of("all")
    commands = commands_of(words)
    assert {word for word in WORDS if word not in words and f"scripts/{word}" not in commands} <= {"contracts"}
    assert "lint-imports" in commands, "the word `contracts`"
    tracked = ["git", "ls-files", "*/test_*.py"]
    files = subprocess.run(tracked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert files and sorted(set(files) - collected(commands)) == []


@pytest.mark.parametrize("marker", ["long", "timing"])
def test_what_the_gate_leaves_out_is_run_by_all(marker: str) -> None:
    assert f"{marker}-test" in words_of("all")
    [expression] = re.findall(r"-m '([^']*)'", commands_of({f"{marker}-test"}))
    assert marker in expression.replace("not timing", "")
    [gate] = re.findall(r"-m '([^']*)'", commands_of({"test"}))
    assert gate == "not long and not timing"
