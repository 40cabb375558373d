"""docs/seeds.md: each requirement names the tests that hold it, and exactly these tests carry its number."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`((?:libs|services|tests)/[\w./-]+\.py)::(\w+)`")
# What the last cell says where no test holds the requirement, or where a test holds what is there instead.
REASONS = ("Why we differ: ", "Open: ", "Gap: ")
SKIPS = {"skip", "skipif", "xfail", "importorskip"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One requirement: its number, its document and section, and the cell that says what holds it."""

    number: int
    document: str
    requirement: str
    cell: str

    @property
    def tests(self) -> frozenset[str]:
        return frozenset(f"{file}::{name}" for file, name in TEST.findall(self.cell))


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """One test with its numbers, and whether it is skipped."""

    name: str
    numbers: tuple[int, ...]
    skipped: bool


def rows(text: str) -> list[Row]:
    """The rows of the tables whose first column is a number."""
    lines = (line for line in text.splitlines() if re.match(r"\| \d+ \|", line))
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [Row(number=int(one[0]), document=one[1], requirement=one[2], cell=one[-1]) for one in cells]


def words(node: ast.AST) -> set[str]:
    """The names that an expression uses."""
    found = (getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(node))
    return {name for name in found if name}


def module_is_skipped(tree: ast.Module) -> bool:
    """Whether a statement outside of functions and classes skips the tests of the module."""
    outside = (one for one in tree.body if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
    return any(words(one) & SKIPS and (isinstance(one, ast.Expr) or "pytestmark" in words(one)) for one in outside)


def functions(node: ast.AST, outer: frozenset[str] = frozenset()) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """Each function below a node, with the names in the decorators of the classes around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from functions(child, outer.union(*map(words, child.decorator_list)))
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, outer


def numbers_of(decorator: ast.expr) -> tuple[int, ...]:
    """The arguments of `@pytest.mark.seed(…)`; none of another decorator."""
    match decorator:
        case ast.Call(func=ast.Attribute(attr="seed", value=ast.Attribute(attr="mark"))):
            return tuple(ast.literal_eval(argument) for argument in decorator.args)
    return ()


def marked(source: str, file: str) -> list[Marked]:
    """The tests of a module that carry a number."""
    tree = ast.parse(source)
    skipped, found = module_is_skipped(tree), []
    for function, outer in functions(tree):
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        numbers = tuple(number for one in function.decorator_list for number in numbers_of(one))
        names = outer.union(*map(words, function.decorator_list), *map(words, calls_of_pytest(function)))
        if numbers:
            found.append(
                Marked(name=f"{file}::{function.name}", numbers=numbers, skipped=skipped or bool(names & SKIPS))
            )
    return found


def calls_of_pytest(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """What a test calls of pytest itself, as `pytest.skip`."""
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pytest"))):
                yield node.func


def all_marked() -> list[Marked]:
    files = (path for top in ("libs", "services", "tests") for path in (ROOT / top).rglob("test_*.py"))
    sources = ((path, path.read_text(encoding="utf-8")) for path in sorted(files))
    return [
        one
        for path, source in sources
        if "mark.seed(" in source
        for one in marked(source, path.relative_to(ROOT).as_posix())
    ]


def by_number(tests: list[Marked]) -> Mapping[int, set[str]]:
    found: defaultdict[int, set[str]] = defaultdict(set)
    for one in tests:
        for number in one.numbers:
            found[number].add(one.name)
    return found


ROWS = rows((ROOT / "docs" / "seeds.md").read_text(encoding="utf-8"))
MARKED = all_marked()


def test_each_requirement_has_a_number_tests_or_a_reason() -> None:
    assert len(ROWS) > 150
    assert [row.number for row in ROWS] == list(range(1, len(ROWS) + 1))
    assert [name for name, count in Counter((row.document, row.requirement) for row in ROWS).items() if count > 1] == []
    empty = [row.number for row in ROWS if not row.tests and not any(reason in row.cell for reason in REASONS)]
    assert empty == [], "these name neither a test as `path::name` nor a reason"
    assert [row.number for row in ROWS if row.cell.count("::") != len(TEST.findall(row.cell))] == []
    unlinked = [row.number for row in ROWS if "Why we differ" in row.cell and "](" not in row.cell]
    assert unlinked == [], "a reason names the document that gives it"


def test_the_tests_of_a_requirement_are_those_that_carry_its_number() -> None:
    carried = by_number(MARKED)
    assert {row.number: row.tests for row in ROWS if row.tests} == carried


def test_no_test_of_a_requirement_is_skipped() -> None:
    assert [one.name for one in MARKED if one.skipped] == []


def test_what_a_module_marks_and_skips_is_found() -> None:
    source = """
import pytest

@pytest.mark.seed(1, 2)
@pytest.mark.parametrize("n", [1])
async def test_one(n): pass

@pytest.mark.seed(3)
@pytest.mark.skipif(True, reason="x")
def test_two(): pass

@pytest.mark.xfail
class TestThree:
    @pytest.mark.seed(4)
    def test_four(self): pass

@pytest.mark.seed(5)
def test_five(): pytest.skip("no")

def test_six(): pass
"""
    found = [(one.name, one.numbers, one.skipped) for one in marked(source, "a.py")]
    assert found == [
        ("a.py::test_one", (1, 2), False),
        ("a.py::test_two", (3,), True),
        ("a.py::test_four", (4,), True),
        ("a.py::test_five", (5,), True),
    ]
    for line in ("pytestmark = pytest.mark.skipif(True, reason='x')", 'pytest.importorskip("helm")'):
        assert all(one.skipped for one in marked(f"{source}\n{line}\n", "a.py"))


def test_a_row_is_read() -> None:
    [row] = rows(
        "| n | a |\n|---|---|\n| 7 | S0 4.1 | Jobs have names. | `name` | `libs/a/tests/test_a.py::test_b` · Open: c |"
    )
    assert (row.number, row.document, row.requirement) == (7, "S0 4.1", "Jobs have names.")
    assert row.tests == {"libs/a/tests/test_a.py::test_b"}
