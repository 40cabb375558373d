"""The module-size gate catches what it should, and its list of exceptions can only shrink."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def gate(tmp_path: Path, lines: int, allowed: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the gate in a repository with one function of `lines` lines."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/check-size", tmp_path / "scripts")
    (tmp_path / "scripts/size-allow.txt").write_text(allowed)
    (tmp_path / "a.py").write_text("def f():\n" + "    pass\n" * (lines - 1))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return subprocess.run(
        [sys.executable, tmp_path / "scripts/check-size"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("lines", "allowed", "answer"),
    [
        (60, "", ""),
        (61, "", "a.py::f: 61 lines, at most 60"),
        (61, "a.py::f 61", ""),
        (62, "a.py::f 61", "was allowed 61"),
        (61, "a.py::f 90", "lower its entry"),
        (60, "a.py::f 61", "remove it"),
        (60, "b.py 500", "not in the repository"),
        (401, "a.py::f 401", "a.py: 401 lines, at most 400"),
    ],
)
def test_the_gate(tmp_path: Path, lines: int, allowed: str, answer: str) -> None:
    done = gate(tmp_path, lines, allowed)
    assert done.returncode == (1 if answer else 0), done.stdout
    assert answer in done.stdout


def test_this_repository_passes() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts/check-size"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
