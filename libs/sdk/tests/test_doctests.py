"""Every example in a docstring of the package gives what it shows."""

import doctest
import importlib
import pkgutil

import pytest

import toban

MODULES = sorted(found.name for found in pkgutil.walk_packages(toban.__path__, "toban."))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 5
