"""The list of what an image holds is complete, and a licence that does not fit is found."""

import json
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    loader = SourceFileLoader("sbom", str(ROOT / "scripts" / "sbom"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_image_has_a_valid_list(sbom: ModuleType) -> None:
    locks = {file.stem for file in (ROOT / "requirements" / "images").glob("*.txt")}
    assert locks == set(sbom.SERVICES), "each lock file has a list"
    for service in sbom.SERVICES:
        # Raises for what is not valid CycloneDX.
        found = json.loads(sbom.document(service))
        assert {(one["name"], one["version"]) for one in found["components"]} == set(sbom.locked(service))
        assert all(one["licenses"] for one in found["components"])
        assert found["metadata"]["component"]["name"] == f"toban-{service}"


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "AGPL-3.0-or-later", "MIT AND GPL-2.0-only", "SSPL-1.0", "BUSL-1.1", "", "Something"]
)
def test_what_does_not_fit_is_told(sbom: ModuleType, licence: str) -> None:
    assert "thing 1.0" in sbom.problems(sbom.Package("thing", "1.0", licence))


def test_what_fits(sbom: ModuleType) -> None:
    for licence in ("MIT", "Apache-2.0 OR BSD-3-Clause", "LGPL-3.0-only", "Apache-2.0 AND BSD-2-Clause"):
        assert sbom.problems(sbom.Package("thing", "1.0", licence)) == ""
