"""The dashboard by Grafana's own model of one: what the model does not know, a panel would not show. `make chart-test`, without a Grafana."""

from __future__ import annotations

import copy
import importlib
import json
import re
import typing
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "toban.json"
WIDTH = 24
Document = dict[str, Any]


def part(name: str) -> Any:
    pytest.importorskip("grafana_foundation_sdk", reason="make chart-test installs it")
    return importlib.import_module(f"grafana_foundation_sdk.{name}")


@pytest.fixture(scope="module")
def shown() -> Document:
    part("cog.plugins").register_default_plugins()
    made: Document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return made


def faults(document: Document) -> list[str]:
    """Fields that the model drops, values of a wrong type, panels, queries and units that Grafana does not have."""
    try:
        read = part("models.dashboard").Dashboard.from_json(document)
    except (ValueError, TypeError, AttributeError) as error:
        return [f"cannot be read: {error}"]
    written = json.loads(json.dumps(read, cls=part("cog.encoder").JSONEncoder))
    return [*_dropped(document, written, ""), *_mistyped(read, ""), *_strange(document)]


def _dropped(given: Any, kept: Any, place: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if name in kept:
                yield from _dropped(value, kept[name], f"{place}/{name}")
            else:
                yield f"{place}/{name}: unknown"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from _dropped(one, other, f"{place}/{number}")
    elif given != kept:
        yield f"{place}: {given!r} is read as {kept!r}"


def _mistyped(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _mistyped(item, f"{place}/{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _mistyped(item, f"{place}/{number}")
    elif type(value).__module__.startswith("grafana_foundation_sdk.models."):
        for name, fits in _fields(type(value)).items():
            item = getattr(value, name)
            if not fits(item):
                yield f"{place}/{name}: {item!r} does not fit"
            yield from _mistyped(item, f"{place}/{name}")


@cache
def _fields(model: type) -> dict[str, Any]:
    """Attribute → whether a value fits it."""
    pydantic = importlib.import_module("pydantic")
    config = pydantic.ConfigDict(arbitrary_types_allowed=True, strict=True)

    def check(hint: Any) -> Any:
        adapter = pydantic.TypeAdapter(_plain(hint), config=config)

        def fits(value: Any) -> bool:
            try:
                adapter.validate_python(value)
            except pydantic.ValidationError:
                return False
            return True

        return fits

    return {name: check(hint) for name, hint in typing.get_type_hints(model).items()}


def _plain(hint: Any) -> Any:
    """A type with the words of its enumerations: the model keeps them as they were given."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return typing.Literal[tuple(member.value for member in hint)]
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin is None or origin is typing.Literal:
        return hint
    return origin[tuple(_plain(one) for one in within)]


def _strange(document: Document) -> Iterator[str]:
    runtime = importlib.import_module("grafana_foundation_sdk.cog.runtime")
    units = {word for hint in vars(part("models.units"))["__annotations__"].values() for word in typing.get_args(hint)}
    for panel in document["panels"]:
        place = f"panel {panel['id']} ({panel['title']})"
        if panel["type"] != "row" and runtime.panelcfg_config(panel["type"]) is None:
            yield f"{place}: there is no panel {panel['type']}"
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "none")
        if unit not in units:
            yield f"{place}: there is no unit {unit}"
        for name in re.findall(r"\$\{(\w+)", json.dumps(panel)):
            if name not in {variable["name"] for variable in document["templating"]["list"]}:
                yield f"{place}: there is no variable {name}"


def test_grafana_knows_everything_in_it(shown: Document) -> None:
    assert faults(shown) == []


def test_the_model_is_of_the_grafana_that_compose_starts() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    (release,) = re.findall(r"grafana:(\d+\.\d+)\.", compose["services"]["grafana"]["image"])
    wanted = (ROOT / "requirements" / "deploy.in").read_text(encoding="utf-8")
    assert re.findall(r"^grafana-foundation-sdk==\d+!(\d+\.\d+)\.0$", wanted, re.MULTILINE) == [release]


def test_panels_have_their_own_place_and_number(shown: Document) -> None:
    numbers = [panel["id"] for panel in shown["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in shown["panels"]:
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= WIDTH
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        queries = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(queries)) == len(queries) >= (panel["type"] != "row")


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("titel", "Toban", "/titel: unknown"),
        ("refresh", 30, "/refresh: 30 does not fit"),
        ("time/form", "now-3h", "/time/form: unknown"),
        ("graphTooltip", 7, "/graph_tooltip: 7 does not fit"),
        ("templating/list/0/type", "data source", "/type_val: 'data source' does not fit"),
        ("templating/list/0/name", "origin", "there is no variable source"),
        ("panels/1/type", "stats", "there is no panel stats"),
        ("panels/1/gridPos/w", "4", "does not fit"),
        ("panels/1/desription", "x", "/panels/1/desription: unknown"),
        ("panels/1/options/reduceOptions/calc", ["last"], "/panels/1/options/reduceOptions/calc: unknown"),
        ("panels/1/options/reduceOptions/calcs", "last", "/calcs"),
        ("panels/1/fieldConfig/defaults/unit", "percents", "there is no unit percents"),
        ("panels/1/fieldConfig/defaults/minimum", 0, "/panels/1/fieldConfig/defaults/minimum: unknown"),
        ("panels/1/targets/0/expression", "up", "/panels/1/targets/0/expression: unknown"),
        ("panels/1/targets/0/legendFormat", 1, "does not fit"),
        ("panels/1/datasource/id", "x", "/panels/1/datasource/id: unknown"),
        ("panels/8/options/legend/displayMode", "lines", "/legend/display_mode: 'lines' does not fit"),
        ("panels/8/options/legend/position", "bottom", "/panels/8/options/legend/position: unknown"),
    ],
)
def test_a_mistake_is_found(shown: Document, place: str, value: Any, says: str) -> None:
    bad = copy.deepcopy(shown)
    *way, last = place.split("/")
    target: Any = bad
    for step in way:
        target = target[int(step)] if isinstance(target, list) else target[step]
    target[last] = value
    found = faults(bad)
    assert any(says in told for told in found), found[:5]
