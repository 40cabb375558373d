"""Payload schemas: the part of JSON Schema 2020-12 that parameters of a job need, checked without any library.

Keywords outside the list are refused when the definition is applied, so that a schema never promises a check that does not happen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import canonical_json, kind_of

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_NOTES = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "format"}
)
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_REST = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "const", "pattern"})
KEYWORDS = _NOTES | _COUNTS | _BOUNDS | _REST

Found = Iterator[tuple[str, str]]


def check_payload(schema: Mapping[str, Any] | None, payload: Mapping[str, Any]) -> None:
    """Raises PAYLOAD_INVALID with every mistake in `detail.errors` when the payload does not fit the schema."""
    problems = list(value_problems(schema, payload)) if schema is not None else []
    if problems:
        path, message = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise TobanError(
            ErrorCode.PAYLOAD_INVALID,
            f"payload{path}: {message}{more}; see `payload_schema` of the job",
            detail={"errors": [{"path": f"payload{path}", "message": message} for path, message in problems]},
        )


def schema_problems(schema: object, path: str = "") -> list[tuple[str, str]]:
    """What is wrong with a schema itself: (path below it, message)."""
    if isinstance(schema, bool):
        return []
    if not isinstance(schema, Mapping):
        return [(path, f"must be a mapping, is {kind_of(schema)}")]
    found = [
        (f"{path}.{key}", "is not available in this version; use " + ", ".join(sorted(_REST | _BOUNDS | _COUNTS)))
        for key in schema
        if key not in KEYWORDS
    ]
    for key in schema:
        found += _keyword_problems(str(key), schema[key], f"{path}.{key}")
    return found


def _keyword_problems(key: str, value: Any, path: str) -> list[tuple[str, str]]:
    if key == "properties":
        if not isinstance(value, Mapping):
            return [(path, "must be a mapping of names to schemas")]
        return [problem for name, item in value.items() for problem in schema_problems(item, f"{path}.{name}")]
    if key in ("items", "additionalProperties"):
        return schema_problems(value, path)
    if not _keyword_sound(key, value):
        return [(path, f"{value!r} is not a value for {key}")]
    return []


def _keyword_sound(key: str, value: Any) -> bool:
    if key == "type":
        names = value if isinstance(value, list) else [value]
        return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)
    if key in ("required", "enum"):
        return isinstance(value, list) and (key == "enum" or all(isinstance(name, str) for name in value))
    if key in _COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if key in _BOUNDS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return _compiles(value) if key == "pattern" else True


def _compiles(pattern: object) -> bool:
    try:
        return isinstance(pattern, str) and re.compile(pattern) is not None
    except re.error:
        return False


def value_problems(schema: Mapping[str, Any] | bool, value: Any, *, path: str = "", partial: bool = False) -> Found:
    """Where a value does not fit a sound schema: (path, message). `partial` lets required keys be missing at the top."""
    if isinstance(schema, bool):
        if not schema:
            yield path, "is not allowed here"
        return
    if "type" in schema and not _is_type(schema["type"], value):
        yield path, f"must be {_type_words(schema['type'])}, is {kind_of(value)}"
        return
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        yield path, f"must be one of {', '.join(canonical_json(choice) for choice in schema['enum'])}"
    if "const" in schema and not _same(value, schema["const"]):
        yield path, f"must be {canonical_json(schema['const'])}"
    if isinstance(value, dict):
        yield from _object_problems(schema, value, path, partial)
    elif isinstance(value, list):
        yield from _size_problems(schema, len(value), path, "Items", "items")
        for index, item in enumerate(value):
            yield from value_problems(schema.get("items", True), item, path=f"{path}[{index}]")
    elif isinstance(value, str):
        yield from _size_problems(schema, len(value), path, "Length", "characters")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield path, f"does not match {schema['pattern']!r}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _bound_problems(schema, value, path)


def _object_problems(schema: Mapping[str, Any], value: dict[str, Any], path: str, partial: bool) -> Found:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value and not partial:
            yield f"{path}.{name}", "is missing"
    for name, item in value.items():
        below = properties.get(name, schema.get("additionalProperties", True))
        if below is False:
            known = f"; known are {', '.join(properties)}" if properties else ""
            yield f"{path}.{name}", f"is not a parameter{known}"
        else:
            yield from value_problems(below, item, path=f"{path}.{name}")


def _size_problems(schema: Mapping[str, Any], size: int, path: str, suffix: str, unit: str) -> Found:
    if size < schema.get(f"min{suffix}", 0):
        yield path, f"must have at least {schema[f'min{suffix}']} {unit}, has {size}"
    if size > schema.get(f"max{suffix}", size):
        yield path, f"must have at most {schema[f'max{suffix}']} {unit}, has {size}"


def _bound_problems(schema: Mapping[str, Any], value: float, path: str) -> Found:
    if "minimum" in schema and value < schema["minimum"]:
        yield path, f"must be at least {schema['minimum']}, is {value}"
    if "maximum" in schema and value > schema["maximum"]:
        yield path, f"must be at most {schema['maximum']}, is {value}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield path, f"must be above {schema['exclusiveMinimum']}, is {value}"
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        yield path, f"must be below {schema['exclusiveMaximum']}, is {value}"


def _is_type(wanted: str | list[str], value: object) -> bool:
    for name in [wanted] if isinstance(wanted, str) else wanted:
        if isinstance(value, bool):
            if name == "boolean":
                return True
        elif isinstance(value, _TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer()):
            return True
    return False


def _type_words(wanted: str | list[str]) -> str:
    return wanted if isinstance(wanted, str) else " or ".join(wanted)


def _same(left: object, right: object) -> bool:
    """JSON equality: true is not 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)
