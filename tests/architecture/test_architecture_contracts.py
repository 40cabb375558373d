"""Each import contract of pyproject.toml breaks when it is violated: a tree of the same modules, empty but for planted imports."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
CONTRACTS: dict[str, Mapping[str, Any]] = {contract["name"]: contract for contract in CONFIGURATION["contracts"]}
Edge = tuple[str, str]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The configuration and every module of every package, without content."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for source in ROOT.glob("*/*/src/*"):
        for module in source.rglob("*.py"):
            empty = tmp_path / source.name / module.relative_to(source)
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
    return tmp_path


def file_of(tree: Path, module: str) -> Path | None:
    path = tree / module.replace(".", "/")
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.exists()), None)


def lint(tree: Path) -> str:
    """What lint-imports prints, with lines as long as they are."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "500"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if " BROKEN" in done.stdout else 0), done.stdout + done.stderr
    return done.stdout


def violations(contract: Mapping[str, Any], tree: Path) -> Iterator[Edge]:
    """Imports (importer, imported) that the contract must refuse."""
    match contract["type"]:
        case "forbidden":
            yield from product(contract["source_modules"], contract["forbidden_modules"])
        case "protected":
            allowed = set(contract["allowed_importers"])
            for module in contract["protected_modules"]:
                others = set(CONFIGURATION["root_packages"]) - allowed - {module.partition(".")[0]}
                yield from product(sorted(others), [module])
        case "layers":
            for container in contract.get("containers", [""]):
                yield from layer_violations(contract["layers"], f"{container}." if container else "", tree)
        case "acyclic_siblings":
            for ancestor in contract["ancestors"]:
                folder = tree / ancestor.replace(".", "/")
                siblings = {f"{ancestor}.{child.stem}" for child in folder.glob("[a-z]*")}
                first, second = sorted(name for name in siblings if file_of(tree, name))[:2]
                yield from ((first, second), (second, first))
        case other:
            raise NotImplementedError(f"plant violations for contracts of type {other}")


def layer_violations(layers: list[str], prefix: str, tree: Path) -> Iterator[Edge]:
    """The lower of two neighbouring layers imports the higher one, and one of two siblings the other."""
    groups = [[prefix + name.strip(" ()") for name in layer.split("|")] for layer in layers]
    groups = [[name for name in group if file_of(tree, name)] for group in groups]
    for higher, lower in pairwise(group for group in groups if group):
        yield lower[0], higher[0]
    for group in groups:
        yield from pairwise(group)


def sections(printed: str) -> dict[str, str]:
    """What is printed about each broken contract, by its name."""
    names = "|".join(re.escape(name) for name in CONTRACTS)
    parts = re.split(rf"^({names})\n-+\n", printed, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_a_tree_without_imports_keeps_every_contract(tree: Path) -> None:
    printed = lint(tree)
    assert [name for name in CONTRACTS if f"{name} KEPT\n" not in printed] == []


@pytest.mark.seed(89)
def test_every_contract_breaks_with_each_planted_import(tree: Path) -> None:
    planted = {name: set(violations(contract, tree)) for name, contract in CONTRACTS.items()}
    for importer, imported in sorted(set().union(*planted.values())):
        file = file_of(tree, importer)
        assert file is not None, f"{importer} of a contract does not exist"
        with file.open("a") as content:
            content.write(f"import {imported}\n")
    printed = lint(tree)
    assert [name for name in CONTRACTS if not planted[name] or f"{name} BROKEN\n" not in printed] == []
    reported = sections(printed)
    missed = [
        f"{name}: {importer} -> {imported}"
        for name, edges in planted.items()
        for importer, imported in sorted(edges)
        # Of a circle one import is named, by relative names.
        if CONTRACTS[name]["type"] != "acyclic_siblings" and f"{importer} -> {imported} (l." not in reported[name]
    ]
    assert missed == []


def test_a_stray_module_breaks_the_contract_about_the_rooms_of_a_service(tree: Path) -> None:
    exhaustive = {name: contract for name, contract in CONTRACTS.items() if contract.get("exhaustive")}
    assert exhaustive
    for contract in exhaustive.values():
        for container in contract["containers"]:
            (tree / container / "utils.py").touch()
    reported = sections(lint(tree))
    assert set(reported) == set(exhaustive)
    for name, contract in exhaustive.items():
        assert [place for place in contract["containers"] if f"{place}.utils" not in reported[name]] == []
