"""scripts/gen-seeds finds the tests of a requirement, and refuses numbers and rows that have none."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
import pytest

@pytest.mark.seed(1, 2)
@pytest.mark.parametrize("n", [1])
async def test_one(n): pass

@pytest.mark.seed(3)
@pytest.mark.skipif(True, reason="x")
def test_two(): pass

@pytest.mark.seed(4)
def test_three(): pytest.skip("no")

@pytest.mark.seed(5)
def test_four(): policy.skip()

def test_five(): pass
"""


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    loader = SourceFileLoader("gen_seeds", str(ROOT / "scripts/gen-seeds"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_what_a_module_marks_and_skips_is_found(generator: ModuleType) -> None:
    assert list(generator.marked(SOURCE)) == [
        (1, "test_one", False),
        (2, "test_one", False),
        (3, "test_two", True),
        (4, "test_three", True),
        (5, "test_four", False),
    ]
    for line in ("pytestmark = pytest.mark.skipif(True, reason='x')", 'pytest.importorskip("helm")'):
        assert all(skipped for _, _, skipped in generator.marked(f"{SOURCE}\n{line}\n"))


def test_the_last_cell_is_filled(generator: ModuleType) -> None:
    text = "# Title\n| n | a | why | tests |\n| 1 | A job. | — | `old` |\n| 2 | B. | Open: later | `gone` |\n"
    assert generator.filled(text, {1: ["`a::b`", "`a::c`"]}).splitlines()[2:] == [
        "| 1 | A job. | — | `a::b` · `a::c` |",
        "| 2 | B. | Open: later | — |",
    ]


def test_a_row_without_a_test_and_a_number_without_a_row_are_refused(generator: ModuleType) -> None:
    with pytest.raises(ValueError, match="row 1 has neither a test nor a reason"):
        generator.filled("| 1 | A job. | — | — |\n", {})
    with pytest.raises(ValueError, match="row 1 links no document"):
        generator.filled("| 1 | A job. | Why we differ: it is better | — |\n", {})
    with pytest.raises(ValueError, match="no row for"):
        generator.filled("| 1 | A job. | — | — |\n", {1: ["`a::b`"], 7: ["`a::c`"]})
