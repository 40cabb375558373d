"""Every example in a docstring of the package gives what it shows, and the code of its page works with it."""

import ast
import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import toban
from toban.worker import StepFailedError

# Django imports these itself, once it has settings; tests/e2e/test_django.py has a project for them.
OF_A_PROJECT = (
    "toban.django.conf",
    "toban.django.models",
    "toban.django.admin",
    "toban.django.events",
    "toban.django.management",
    "toban.django.tasks",
)
MODULES = sorted(
    found.name for found in pkgutil.walk_packages(toban.__path__, "toban.") if not found.name.startswith(OF_A_PROJECT)
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 5


PAGE = Path(__file__).parents[3] / "docs" / "sdk.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_what_the_page_imports_exists(number: int) -> None:
    imports = [node for node in ast.walk(ast.parse(BLOCKS[number])) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports
    for node in imports:
        exec(compile(ast.Module([node], []), str(PAGE), "exec"), {})


def test_the_tests_of_the_page_pass() -> None:
    [block] = [block for block in BLOCKS if "toban.testing" in block]
    found: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), found)
    tests = [one for name, one in found.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_worker_of_the_page_does_its_step() -> None:
    [block] = [block for block in BLOCKS if "@worker.task" in block]
    found: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, str(PAGE), "exec"), found)
    shown: list[float] = []
    step = SimpleNamespace(payload={"in": "a.mov"}, progress=lambda percentage, _: shown.append(percentage))
    assert found["transcode"](step) == {"out": "a.mp4"} and len(shown) == 10
    step.payload["in"] = "a.txt"
    with pytest.raises(StepFailedError, match="no codec"):
        found["transcode"](step)
