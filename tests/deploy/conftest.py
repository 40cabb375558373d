"""The Helm chart, rendered without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "toban"
LEAST = {"postgresql": {"existingSecret": "pg"}, "redis": {"existingSecret": "rd"}}
Object = dict[str, Any]


class Chart:
    """`render(values)` gives the objects; a wrong value raises with Helm's words."""

    def __init__(self, helm: Any) -> None:
        self.helm = helm
        self._loaded = helm.Chart.load(CHART)

    def render(self, values: Object, release: str = "toban", namespace: str = "jobs") -> list[Object]:
        """Every object of a release."""
        self._loaded.validate_schema(values)
        files = self._loaded.render(values, name=release, namespace=namespace)
        return [
            found
            for path, text in files.items()
            if path.endswith(".yaml")
            for found in yaml.safe_load_all(text)
            if found is not None
        ]

    def notes(self, values: Object) -> str:
        """What an operator reads after the installation."""
        return str(self._loaded.render(values, name="toban", namespace="jobs")["toban/templates/NOTES.txt"])


@pytest.fixture(scope="session")
def chart() -> Chart:
    """Skipped where requirements/deploy.txt is not installed (`make chart-test` does that)."""
    return Chart(pytest.importorskip("helm_python", reason="make chart-test installs it"))


@pytest.fixture(scope="session")
def example(chart: Chart) -> Callable[[str], list[Object]]:
    """The objects of one file of deploy/helm/toban/examples, rendered once: nobody changes them."""

    @cache
    def objects(name: str) -> list[Object]:
        return chart.render(yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text()))

    return objects


@pytest.fixture(scope="session")
def least(chart: Chart) -> list[Object]:
    """The objects of the defaults, with the two Secrets that have none."""
    return chart.render(LEAST)


@pytest.fixture(scope="session")
def one() -> Callable[..., Object]:
    """`one(objects, kind, name)`: the only object of that kind and name."""

    def find(objects: list[Object], kind: str, name: str) -> Object:
        found = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} of {kind} {name}"
        return found[0]

    return find
