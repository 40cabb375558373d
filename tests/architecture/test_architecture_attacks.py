"""tests/attack/attacks.toml: each attack names tests that exist, and each test of that folder belongs to an attack."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "attack"
REVIEW = ROOT / "docs" / "reviews" / "attacks-by-finding.md"
FINDINGS = [
    *("C1", *(f"H{n}" for n in range(1, 5)), *(f"M{n}" for n in range(1, 12)), *(f"L{n}" for n in range(1, 13))),
    *(*(f"N{n}" for n in range(1, 7)), *(f"L-{letter}" for letter in "abcdefghij")),
]
# A short name in italics, the file or `::` for the one before, and a function.
NAMED = re.compile(r"\*([a-z-]+)\*(?= `)|`([\w./-]*?(?:::\w+))`")


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


def named_in(row: str) -> list[str]:
    """The tests that a row of the review names, with whole paths."""
    short = {
        **{name: f"services/{name}/tests" for name in ("coordinator", "admin-web", "executor")},
        **{name: f"libs/{name}/tests" for name in ("transport", "observability", "store", "domain", "runtime")},
        **{name: f"apps/{name}/tests" for name in ("cli", "stack")},
        "people": "tests/attack/test_limited_people.py",
        "calls": "tests/attack/test_forged_calls.py",
        "certificates": "tests/attack/test_forged_certificates.py",
        "input": "tests/attack/test_hostile_input.py",
        "escapes": "tests/attack/test_job_escapes.py",
        "isolation": "tests/attack/test_isolation.py",
        "isolated-calls": "tests/attack/test_isolation_calls.py",
    }
    found, folder, file = [], "", ""
    for name, test in NAMED.findall(row):
        if name:
            folder = file = short[name]
            continue
        path, _, function = test.partition("::")
        if path:
            file = path if "/" in path and (ROOT / path).exists() else f"{folder}/{path}"
        found.append(f"{file}::{function}")
    return found


def test_each_attack_names_tests_that_exist() -> None:
    for does, tests in listed().items():
        assert tests, f"{does}: no test"
        for test in tests:
            file = ROOT / test.partition("::")[0]
            assert file.exists() and test in functions_of(file), f"{does}: {test} does not exist"


def test_each_test_of_the_folder_belongs_to_an_attack() -> None:
    there = set().union(*map(functions_of, FOLDER.glob("test_*.py")))
    assert there - {test for tests in listed().values() for test in tests} == set()


def test_each_finding_of_the_audits_has_a_row_whose_tests_exist() -> None:
    rows = dict(re.findall(r"^\| ([CHMLN](?:-[a-j]|\d+)) \| (.+) \|$", REVIEW.read_text(), re.MULTILINE))
    assert list(rows) == FINDINGS
    for finding, row in rows.items():
        tests = named_in(row)
        assert tests or "class isolated" in row or "documented" in row, finding
        for test in tests:
            file = ROOT / test.partition("::")[0]
            assert file.is_file() and test in functions_of(file), f"{finding}: {test} does not exist"


def test_the_suite_is_part_of_what_must_pass() -> None:
    assert "fault-test attack-test" in (ROOT / "scripts" / "gate").read_text()
    assert "python -m pytest tests/attack " in (ROOT / "Makefile").read_text()
