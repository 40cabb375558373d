"""What the page about the API shows, from the OpenAPI document: operations by tag, their parameters, and the fields of their bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
_METHODS = ("get", "post", "put", "patch", "delete")
# Deeper objects are shown as their type.
_MAX_DEPTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A parameter, or a field of a body. `place`: path, query, header or body; `kind` is its JSON type and its limits, for people."""

    name: str
    place: str
    required: bool
    kind: str
    text: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One route. `example` is a body with the fields that it must have; "" = it takes no body."""

    id: str
    verb: str
    path: str
    summary: str
    text: str
    parameters: tuple[Input, ...]
    fields: tuple[Input, ...]
    example: str

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.verb == "GET"


def operations_by_tag(document: Mapping[str, Any]) -> dict[str, list[Operation]]:
    """The operations of each tag, by path; tags by name."""
    found: dict[str, list[Operation]] = {}
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for verb in _METHODS:
            if verb in methods:
                given = methods[verb]
                found.setdefault(given["tags"][0], []).append(_operation(path, verb, given, schemas))
    return dict(sorted(found.items()))


def _operation(path: str, verb: str, given: Mapping[str, Any], schemas: Mapping[str, Any]) -> Operation:
    body = given.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return Operation(
        id=given["operationId"],
        verb=verb.upper(),
        path=path,
        summary=given["summary"],
        text=given.get("description", ""),
        parameters=tuple(_parameter(one, schemas) for one in given["parameters"]),
        fields=tuple(_fields(body, schemas, "", 1)) if body else (),
        example=json.dumps(_example(body, schemas), indent=2) if body else "",
    )


def _parameter(given: Mapping[str, Any], schemas: Mapping[str, Any]) -> Input:
    schema = given["schema"]
    item = schema.get("items", schema)
    return Input(
        name=given["name"],
        place=given["in"],
        required=given.get("required", False),
        kind=_kind(schema, schemas),
        text=given.get("description", ""),
        choices=tuple(str(one) for one in item.get("enum", ()) if one != ""),
    )


def _fields(schema: Mapping[str, Any], schemas: Mapping[str, Any], prefix: str, depth: int) -> Iterator[Input]:
    opened = _resolved(schema, schemas)
    for name, given in opened.get("properties", {}).items():
        inner = _resolved(given, schemas)
        yield Input(
            name=f"{prefix}{name}",
            place="body",
            required=name in opened.get("required", ()),
            kind=_kind(given, schemas),
            text=given.get("description", ""),
        )
        if depth < _MAX_DEPTH:
            item = _resolved(inner.get("items", inner), schemas)
            mark = "[]." if "items" in inner else "."
            yield from _fields(item, schemas, f"{prefix}{name}{mark}", depth + 1)


def _kind(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    opened = _resolved(schema, schemas)
    if "enum" in opened:
        return " | ".join(json.dumps(one) for one in opened["enum"])
    if "const" in opened:
        return json.dumps(opened["const"])
    kind = str(opened.get("type", "any"))
    if kind == "array":
        return f"array of {_kind(opened.get('items', {}), schemas)}"
    bounds = [f"{sign} {opened[name]}" for name, sign in (("minimum", "≥"), ("maximum", "≤")) if name in opened]
    return " ".join([kind, *([opened["format"]] if "format" in opened else []), *bounds])


def _example(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    opened = _resolved(schema, schemas)
    if "properties" not in opened:
        return (opened.get("enum") or [_EMPTY.get(str(opened.get("type")))])[0]
    return {name: _example(opened["properties"][name], schemas) for name in opened.get("required", ())}


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without a reference, and without null as another choice."""
    if "$ref" in schema:
        return _resolved(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return _resolved(choices[0], schemas) if len(choices) == 1 else schema
