"""What each key of a manifest is, as data, for `toban explain` and docs/manifests.md. Read from manifest.schema.json, without pydantic."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parent / "manifest.schema.json"
# Texts that YAML reads as text without quotes, also within […] and {…}.
_PLAIN = re.compile(
    r"(?!(?:true|false|null|yes|no|on|off)$|[.][\d_])(?:[a-z/.]|-[a-z])(?:[\w/. @-]|:(?=[a-z]))*", re.IGNORECASE
)
_TYPE_NAMES = {
    "boolean": "true, false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "object": "mapping",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A key. `default` and `example` are YAML; `unset` describes what a missing key means when no value is the same as leaving it out.

    `fields` are the keys below it; `listed`: the value is a list of such mappings.
    """

    key: str
    type: str
    meaning: str
    default: str = ""
    unset: str = ""
    example: str = ""
    fields: tuple[Field, ...] = ()
    listed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of document: what it is, the smallest one, and the keys of its `spec`."""

    name: str
    meaning: str
    example: str
    fields: tuple[Field, ...]


def rows(fields: tuple[Field, ...], *, before: str = "") -> Iterator[tuple[str, Field]]:
    """Each key with its dotted path, in order: of mappings the keys below instead, of lists of mappings the list itself."""
    for one in fields:
        path = f"{before}{one.key}"
        if one.fields and not one.listed and not one.example:
            yield from rows(one.fields, before=f"{path}.")
        else:
            yield path, one
            if one.fields and not one.listed:
                yield from rows(one.fields, before=f"{path}.")


def flow(value: Any) -> str:
    """A JSON value as YAML in one line, with as few quotes as it takes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(name)}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not value.endswith(" "):
        return value
    return json.dumps(value, ensure_ascii=False)


class _Reader:
    """Turns the nodes of the schema into keys."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = schema["$defs"]
        self._alternatives: list[Mapping[str, Any]] = schema["anyOf"]

    def kinds(self) -> Iterator[Kind]:
        """Each kind, in order."""
        for alternative in self._alternatives:
            node = self._target(alternative)
            name = node["properties"]["kind"]["const"]
            yield Kind(
                name=name,
                meaning=node["description"],
                example=node["x-example"],
                fields=self.fields(node["properties"]["spec"]),
            )

    def metadata(self) -> tuple[Field, ...]:
        """The keys of `metadata`, the same for every kind."""
        return self.fields(self._target(self._alternatives[0])["properties"]["metadata"])

    def fields(self, node: Mapping[str, Any]) -> tuple[Field, ...]:
        """The keys of a mapping; none for what has no keys of its own."""
        below = next((one for one in self._forms(node) if "properties" in one), None)
        if below is None:
            return ()
        required = below.get("required", ())
        return tuple(self._field(key, one, key in required) for key, one in below["properties"].items())

    def _field(self, key: str, node: Mapping[str, Any], required: bool) -> Field:
        items = [form["items"] for form in self._forms(node) if self.fields(form.get("items", {}))]
        unset = "required" if required else node.get("x-unset", "")
        return Field(
            key=key,
            type=node.get("x-type") or _type_name(self._forms(node)[0]),
            meaning=node["description"],
            default=flow(node["default"]) if "default" in node and not unset else "",
            unset=unset,
            example=flow(node["examples"][0]) if "examples" in node else "",
            fields=self.fields(items[0] if items else node),
            listed=bool(items),
        )

    def _forms(self, node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The alternatives of a node."""
        return [self._target(one) for one in node.get("anyOf", [node])]

    def _target(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def _type_name(node: Mapping[str, Any]) -> str:
    if "enum" in node or "const" in node:
        return ", ".join(node.get("enum") or [node["const"]])
    return "text to text" if node.get("additionalProperties") else _TYPE_NAMES[node["type"]]


@cache
def kinds() -> Mapping[str, Kind]:
    """Every kind by its name."""
    return {kind.name: kind for kind in _reader().kinds()}


@cache
def metadata() -> tuple[Field, ...]:
    """The keys of `metadata`, the same for every kind."""
    return _reader().metadata()


@cache
def _reader() -> _Reader:
    return _Reader(json.loads(SCHEMA.read_text(encoding="utf-8")))
