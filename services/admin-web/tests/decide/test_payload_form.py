"""Fields from a payload schema, and payloads from what was filled in."""

from __future__ import annotations

from typing import Any

import pytest

from toban_admin_web.decide.payload_form import Field, changed, field_id, fill, payload_fields


def kinds(schema: Any, base: dict[str, Any] | None = None) -> dict[str, str]:
    return {field.name: field.kind for field in payload_fields(schema, base or {})}


def one(schema: Any, base: dict[str, Any] | None = None) -> Field:
    return payload_fields({"properties": {"x": schema}, "additionalProperties": False}, base or {})[0]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "maxLength": 4000}, "long"),
        ({"type": ["string", "null"]}, "text"),
        ({"type": ["string", "integer"]}, "json"),
        ({"type": "integer"}, "integer"),
        ({"type": "number"}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "array"}, "json"),
        ({"enum": ["a", 1, None]}, "choice"),
        ({"$ref": "#/$defs/missing"}, "json"),
        ({}, "json"),
        (True, "json"),
        ([], "json"),
    ],
)
def test_each_type_has_its_field(schema: Any, kind: str) -> None:
    assert one(schema).kind == kind


@pytest.mark.parametrize("schema", [None, [], "x", {}, {"properties": []}, {"type": "object", "required": "x"}])
def test_without_properties_the_payload_is_one_field(schema: Any) -> None:
    [field] = payload_fields(schema, {"a": 1})
    assert (field_id(field), field.kind, field.value) == ("payload", "json", '{\n  "a": 1\n}')


def test_a_reference_within_the_schema_is_followed_and_a_circle_is_not() -> None:
    schema = {
        "properties": {"size": {"$ref": "#/$defs/size", "title": "Size"}, "loop": {"$ref": "#/$defs/loop"}},
        "$defs": {"size": {"$ref": "#/$defs/count"}, "count": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    }
    assert kinds(schema) == {"size": "integer", "loop": "json", "payload": "json"}
    assert payload_fields(schema, {})[0].label == "Size"


def test_a_value_that_is_of_another_kind_is_shown_as_json() -> None:
    for schema, value in (
        ({"type": "integer"}, "7"),
        ({"type": "integer"}, True),
        ({"type": "string"}, 7),
        ({"enum": ["a"]}, "b"),
        ({"type": ["string", "null"]}, None),
    ):
        field = one(schema, {"x": value})
        assert field.kind == "json"
        assert fill([field], {"payload.x": field.value}, {"x": value}).payload == {"x": value}


def test_a_field_that_is_left_as_it_was_keeps_its_value() -> None:
    base = {"a": "one\r\ntwo", "b": 1.0, "c": "", "d": {"x": [None]}, "e": 2**70}
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "number"}, "c": {"type": "string"}}}
    fields = payload_fields(schema, base)
    # Browsers send line ends as CR LF.
    given = {field_id(field): field.value.replace("\r\n", "\n").replace("\n", "\r\n") for field in fields}
    filled = fill(fields, given, base)
    assert filled.valid and filled.payload == base and changed(filled.payload, base) == ({}, False)


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        ({"type": "integer"}, "7.5", "not_integer"),
        ({"type": "number"}, "NaN", "not_number"),
        ({"type": "number"}, "true", "not_number"),
        ({"type": "boolean"}, "1", "not_boolean"),
        ({"enum": ["a"]}, "a", "not_choice"),
        ({"type": "array"}, "[" * 100_000, "not_json"),
        ({}, "{", "not_json"),
    ],
)
def test_what_cannot_be_read_is_a_problem_of_its_field(schema: Any, text: str, problem: str) -> None:
    filled = fill([one(schema)], {"payload.x": text}, {})
    assert (filled.valid, filled.fields[0].problem, filled.fields[0].value) == (False, problem, text)


def test_an_empty_field_is_left_out_unless_the_schema_requires_it() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]}
    filled = fill(payload_fields(schema, {}), {"payload.a": " ", "payload.b": ""}, {})
    assert filled.payload == {} and [field.problem for field in filled.fields] == ["", "missing", ""]


def test_further_keys_do_not_replace_those_with_a_field() -> None:
    schema = {"properties": {"a": {"type": "integer"}}}
    filled = fill(payload_fields(schema, {}), {"payload.a": "1", "payload": '{"a": 2, "b": 3}'}, {})
    assert filled.payload == {"a": 1, "b": 3}


def test_differences_tell_true_from_one() -> None:
    assert changed({"a": True, "b": 1}, {"a": 1, "b": 1, "c": 0}) == ({"a": True}, True)


def test_a_property_called_payload_is_a_field_of_its_own() -> None:
    schema = {"properties": {"payload": {"type": "object"}, "x": {"type": "integer"}}}
    base = {"payload": {"a": 1}, "x": 2, "more": 3}
    fields = payload_fields(schema, base)
    assert [field_id(field) for field in fields] == ["payload.payload", "payload.x", "payload"]
    filled = fill(fields, {field_id(field): field.value for field in fields}, base)
    assert filled.valid and filled.payload == base and changed(filled.payload, base) == ({}, False)


def test_true_is_not_one_at_any_depth() -> None:
    assert changed({"flags": {"dry": False}}, {"flags": {"dry": 0}}) == ({"flags": {"dry": False}}, False)
    assert changed({"flags": {"b": 1, "a": 2}}, {"flags": {"a": 2, "b": 1}}) == ({}, False)
    assert changed({"none": None}, {}) == ({"none": None}, False)


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "array"}])
def test_unprintable_characters_are_shown_as_escapes_and_kept(schema: Any) -> None:
    value: Any = "a\u202eb\x1b" if schema["type"] == "string" else ["a\u202eb\x1b"]
    field = one(schema, {"x": value})
    assert field.kind == "json" and "\\u202eb\\u001b" in field.value
    for base in ({"x": value}, {}):
        assert fill([field], {field_id(field): field.value}, base).payload == {"x": value}
