"""tests/attack/attacks.toml: each attack names tests that exist, and each test of that folder belongs to an attack."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "attack"


def functions_of(file: Path) -> set[str]:
    """The functions of a file that pytest takes for tests."""
    functions = (
        one for one in ast.parse(file.read_text()).body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {f"{file.relative_to(ROOT)}::{one.name}" for one in functions if one.name.startswith("test_")}


def listed() -> dict[str, list[str]]:
    """What an attacker does → its tests."""
    rows = tomllib.loads((FOLDER / "attacks.toml").read_text())["attack"]
    assert all(row.keys() == {"does", "tests"} for row in rows)
    return {row["does"]: row["tests"] for row in rows}


def test_each_attack_names_tests_that_exist() -> None:
    for does, tests in listed().items():
        assert tests, f"{does}: no test"
        for test in tests:
            file = ROOT / test.partition("::")[0]
            assert file.exists() and test in functions_of(file), f"{does}: {test} does not exist"


def test_each_test_of_the_folder_belongs_to_an_attack() -> None:
    there = set().union(*map(functions_of, FOLDER.glob("test_*.py")))
    assert there - {test for tests in listed().values() for test in tests} == set()


def test_the_suite_is_part_of_what_must_pass() -> None:
    assert "fault-test attack-test" in (ROOT / "scripts" / "gate").read_text()
    assert "python -m pytest tests/attack " in (ROOT / "Makefile").read_text()
