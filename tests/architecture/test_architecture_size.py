"""The module-size gate catches what it should, its list of exceptions can only shrink, and its figures follow their definition."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]


def gate(root: Path, files: Mapping[str, str], *arguments: str, allowed: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the gate in a repository with these files."""
    for name, content in {**files, "scripts/size-allow.txt": allowed}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    shutil.copy(ROOT / "scripts/check-size", root / "scripts")
    subprocess.run(["git", "init", "-q", root], check=True)
    command = [sys.executable, root / "scripts/check-size", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def function(lines: int) -> str:
    return "def f():\n" + "    pass\n" * (lines - 1)


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
        (501, "a.py::f 501", "a.py: 501 lines, at most 500"),
    ],
)
def test_the_gate(tmp_path: Path, lines: int, allowed: str, answer: str) -> None:
    done = gate(tmp_path, {"a.py": function(lines)}, allowed=allowed)
    assert done.returncode == (1 if answer else 0), done.stdout
    assert answer in done.stdout


def test_long_modules_and_shared_attributes_are_listed(tmp_path: Path) -> None:
    files = {
        "libs/a/src/toban_a/turn.py": "class Turn:\n    limits = ()\n",
        "libs/a/src/toban_a/loop.py": "from toban_a.turn import Turn\n\n\ndef f(self):\n    self.turn = Turn()\n    self.turn.limits = (1,)\n",
        "long.py": "X = 1\n" * 401,
    }
    done = gate(tmp_path, files)
    assert done.returncode == 0, done.stdout
    assert "shared: libs/a/src/toban_a/turn.py: its only importer writes self.turn.limits;" in done.stdout
    assert "long: long.py: 401 lines" in done.stdout


def test_the_figures(tmp_path: Path) -> None:
    source = "libs/a/src/toban_a"
    importing = "from toban_a import once, twice\nfrom toban_a.long import f\n"
    files = {
        f"{source}/__init__.py": "",
        f"{source}/__main__.py": importing,
        f"{source}/other.py": "import toban_a.twice\n",
        f"{source}/once.py": '"""Text.\n\nMore."""\n\nimport os\n\n# why\nX = os.sep\n',
        f"{source}/twice.py": "X = 1\n",
        f"{source}/long.py": function(45),
        f"{source}/never.py": "X = 1\n",
        f"{source}/runs.sql": "SELECT 1;\n",
        f"{source}/messages_pb2.py": "X = 1\n",
        "libs/a/tests/test_once.py": "from toban_a import never, once\n",
        "services/b/src/toban_b/main.py": "from toban_a.other import X\n",
    }
    printed = gate(tmp_path, files, "--list").stdout.splitlines()
    assert printed == [
        f"{source}/once.py: 8 lines, 1 of code; imported by {source}/__main__.py",
        f"{source}/other.py: 1 lines, 0 of code; imported by services/b/src/toban_b/main.py",
        "source: 60 lines of Python, SQL and Lua; 8 modules, median 1 lines",
        "small modules with a single importer: 2 under 45 lines of code, 2 under 45 lines in all",
        "size: 10 modules, 0 problems",
    ]
