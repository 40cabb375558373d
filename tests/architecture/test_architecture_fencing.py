"""docs/fencing.md: each clause of the protocol has a row with its rule and the tests that hold it, and these exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "fencing.md").read_text(encoding="utf-8")
CLAUSES = [f"3.{number}" for number in range(1, 13)] + [f"I{number}" for number in range(1, 16)]
TEST = re.compile(r"`((?:apps|libs|services|tests)/[\w./-]+\.py)(?:::(\w+))?`")


def rows(text: str) -> list[tuple[list[str], str]]:
    """The clauses of each row, and the cell of its tests."""
    table = text.split("## Where each rule is held")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line]
    return [(cell[0].partition(":")[0].split(", "), cell[-1]) for cell in cells[2:]]


@cache
def functions(file: Path) -> frozenset[str]:
    """The functions of a Python file; empty without the file."""
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.exists() else ast.Module([], [])
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing(cell: str, root: Path = ROOT) -> list[str]:
    """Tests in a cell that do not exist; the cell itself when it names none."""
    found = TEST.findall(cell)
    wrong = [f"{file}::{name}" for file, name in found if not (root / file).exists() or (name and name not in functions(root / file))]  # fmt: skip
    return wrong if found else [cell]


@pytest.mark.parametrize("clause", CLAUSES)
def test_each_clause_has_a_row(clause: str) -> None:
    assert any(clause in clauses for clauses, _ in rows(TEXT))


def test_rows_name_only_clauses_and_tests_that_exist() -> None:
    found = rows(TEXT)
    assert len(found) > 45
    assert [clauses for clauses, _ in found if not set(clauses) <= set(CLAUSES)] == []
    assert [name for _, cell in found for name in missing(cell)] == []


def test_a_test_that_is_missing_is_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("def test_one(): pass\n")
    assert missing("`tests/test_a.py`, `tests/test_a.py::test_one`", tmp_path) == []
    assert missing("`tests/test_a.py::test_two`, `tests/test_b.py`", tmp_path) == ["tests/test_a.py::test_two", "tests/test_b.py::"]  # fmt: skip
    assert missing("by review", tmp_path) == ["by review"]
