"""docs/features.md: every feature names tests that hold it, and they exist."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
HERE, LATER = TEXT.split("## What comes later")
TEST = re.compile(r"`((?:libs|services|tests)/[\w./-]+\.py)::(\w+)`")


def rows(text: str) -> list[tuple[str, str]]:
    """Feature and the cell of its tests."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return [(cell[0], cell[-1]) for cell in cells if cell[0] not in ("feature", "capability") and set(cell[0]) != {"-"}]


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_feature_names_its_tests_and_they_exist() -> None:
    found = rows(HERE)
    assert len(found) > 80
    for feature, cell in found:
        tests = TEST.findall(cell)
        assert tests and len(tests) == cell.count("::"), f"{feature}: {cell!r} names no test as `path::name`"
        missing = [
            f"{file}::{name}" for file, name in tests if not (ROOT / file).exists() or name not in functions(file)
        ]
        assert missing == [], feature


def test_nothing_is_here_and_later() -> None:
    here, later = [name for name, _ in rows(HERE)], [name for name, _ in rows(LATER)]
    assert len(here) == len(set(here)) and len(later) == len(set(later)) and later
    assert not set(here) & set(later)
    assert TEST.findall(LATER) == []
