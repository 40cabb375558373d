"""The form for a payload: its fields are made of the JSON Schema of the job, and what is filled in becomes a payload again.

A schema says more than a form can ask for. The coordinators check the whole payload; the form only asks for each key in its own kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toban_admin_web.decide.json_fields import parse_json
from toban_admin_web.decide.log_text import printable, printable_json

PREFIX = "payload."
OTHERS = "payload"
"""The field for keys that have none of their own."""
MAX_REFERENCES = 10
LONG_TEXT = 200
_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_TYPES: dict[str, Any] = {"text": str, "long": str, "integer": int, "number": (int, float), "boolean": bool}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field. `kind` is text, long, integer, number, boolean, choice or json; `problem` names a text form.PROBLEM."""

    name: str
    kind: str
    label: str
    help: str = ""
    required: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    """(JSON, text) of each value of an enumeration."""
    value: str = ""
    minimum: float | None = None
    maximum: float | None = None
    problem: str = ""
    others: bool = False
    """It is for all keys without a field of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A form that was sent: the fields as they were filled in, and the payload; it counts only when no field has a problem."""

    fields: tuple[Field, ...]
    payload: Mapping[str, Any]

    @property
    def valid(self) -> bool:
        """Whether every field could be read."""
        return not any(field.problem for field in self.fields)


def payload_fields(schema: Any, base: Mapping[str, Any]) -> tuple[Field, ...]:
    """A field for each property, in the order of the schema, and one for all other keys; `base` is the payload to begin with."""
    known = _object(schema)
    properties = known.get("properties")
    described = properties if isinstance(properties, dict) else {}
    required = known.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set()
    own = [
        _field(name, _resolved(one, known), needed=name in needed, base=base)
        for name, one in described.items()
        if one is not False
    ]
    rest = {name: value for name, value in base.items() if name not in described}
    if known.get("additionalProperties") is False and not rest:
        return tuple(own)
    shown = _text(rest, indent=2) if rest or not own else ""
    return (*own, Field(name=OTHERS, kind="json", label="", value=shown, others=True))


def fill(fields: Sequence[Field], given: Mapping[str, str], base: Mapping[str, Any]) -> Filled:
    """What a person sent. A field that was left as it was keeps its value in `base`; an empty one leaves its key out."""
    own, payload = [], {}
    for field in fields:
        text = given.get(field_id(field), "").replace("\r\n", "\n")
        if field.others:
            values, problem = _others(text)
            payload.update({name: value for name, value in values.items() if name not in payload})
        else:
            problem = _put(payload, field, text, base)
        own.append(replace(field, value=text, problem=problem))
    return Filled(fields=tuple(own), payload=payload)


def field_id(field: Field) -> str:
    """The name of the field in the form."""
    return OTHERS if field.others else PREFIX + field.name


def changed(payload: Mapping[str, Any], base: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """(values that differ from `base`, whether keys of `base` are missing)."""
    different = {name: value for name, value in payload.items() if name not in base or not _same(base[name], value)}
    return different, any(name not in payload for name in base)


def _same(one: Any, other: Any) -> bool:
    """Equal values of one kind, at every depth: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _field(name: str, schema: Mapping[str, Any], *, needed: bool, base: Mapping[str, Any]) -> Field:
    kind, choices = _kind(schema)
    present = name in base
    if present and not _fits(kind, base[name], choices):
        kind, choices = "json", ()
    value = base[name] if present else schema.get("default") if needed else None
    if kind == "text" and ((_number(schema.get("maxLength")) or 0) > LONG_TEXT or "\n" in str(value or "")):
        kind = "long"
    return Field(
        name=name,
        kind=kind,
        label=str(schema.get("title") or name),
        help=str(schema.get("description") or ""),
        required=needed,
        choices=choices,
        value="" if value is None and not present else _shown(kind, value),
        minimum=_number(schema.get("minimum")) if kind in ("integer", "number") else None,
        maximum=_number(schema.get("maximum")) if kind in ("integer", "number") else None,
    )


def _kind(schema: Mapping[str, Any]) -> tuple[str, tuple[tuple[str, str], ...]]:
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return "choice", tuple((_text(one), one if isinstance(one, str) else _text(one)) for one in values)
    types = schema.get("type")
    names = [one for one in types if one != "null"] if isinstance(types, list) else [types]
    return (_KINDS.get(str(names[0]), "json") if len(names) == 1 else "json"), ()


def _fits(kind: str, value: Any, choices: Sequence[tuple[str, str]]) -> bool:
    if kind == "choice":
        return _text(value) in {one for one, _ in choices}
    if kind == "json":
        return True
    if isinstance(value, str) and printable(value) != value:
        # As text it would be sent back without its unprintable characters; JSON has escapes for them.
        return False
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _shown(kind: str, value: Any) -> str:
    if kind in ("text", "long") and isinstance(value, str):
        return value
    return _text(value, indent=2 if kind == "json" and isinstance(value, dict | list) else None)


def _put(payload: dict[str, Any], field: Field, text: str, base: Mapping[str, Any]) -> str:
    """Puts the value of one field into `payload`; the name of what is wrong with it, or ""."""
    if text == field.value.replace("\r\n", "\n") and field.name in base:
        payload[field.name] = base[field.name]
        return ""
    if not text.strip():
        return "missing" if field.required else ""
    try:
        payload[field.name] = _read(field.kind, text)
    except (ValueError, RecursionError):
        return f"not_{field.kind}"
    return ""


def _read(kind: str, text: str) -> Any:
    """Raises ValueError for text that is not of this kind."""
    if kind in ("text", "long"):
        return text
    if kind == "integer":
        return int(text)
    value = parse_json(text)
    if kind == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError("not a number")
    if kind == "boolean" and not isinstance(value, bool):
        raise ValueError("not true or false")
    return value


def _others(text: str) -> tuple[Mapping[str, Any], str]:
    if not text.strip():
        return {}, ""
    try:
        value = _read("json", text)
    except (ValueError, RecursionError):
        return {}, "not_json"
    return (value, "") if isinstance(value, dict) else ({}, "not_object")


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a `$ref` within the same document names; empty for one that is not there."""
    found = _object(schema)
    for _ in range(MAX_REFERENCES):
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        target: Any = root if reference.startswith("#") else None
        for part in reference.removeprefix("#").strip("/").split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        found = {**_object(target), **{key: value for key, value in found.items() if key != "$ref"}}
    return {}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any, indent: int | None = None) -> str:
    return printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
