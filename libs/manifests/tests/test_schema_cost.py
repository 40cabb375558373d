"""References of payload schemas, and the bound of their work."""

from typing import Any

import pytest

from toban_manifests.schema_cost import SchemaCost


def doubling(levels: int) -> dict[str, Any]:
    """2 KiB of schema whose validation takes 2^levels steps."""
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": defs | {f"d{levels}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"$ref": "http://127.0.0.1:9/a"}, ".$ref"),
        ({"$ref": "file:///etc/hostname"}, ".$ref"),
        ({"properties": {"a": {"items": {"$ref": "other.json"}}}}, ".properties.a.items.$ref"),
        ({"$defs": {"unused": {"not": {"$dynamicRef": "urn:x"}}}}, ".$defs.unused.not.$dynamicRef"),
        ({"$ref": "#/$defs/none"}, ".$ref"),
        ({"$defs": {"a": {"$id": "http://x.test/a"}}}, ".$defs.a.$id"),
        ({"$ref": "#"}, ""),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}, ""),
    ],
)
def test_what_leads_out_of_a_schema_is_named(schema: dict[str, Any], path: str) -> None:
    [problem] = SchemaCost(schema).problems
    assert problem.path == path and problem.message and problem.remedy


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "object"}}},
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": True}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"$id": "http://x.test/a", "$ref": "http://x.test/a#/$defs/a", "$defs": {"a": {}}},
        {"properties": {"$ref": {"type": "string"}}, "const": {"$ref": "http://x.test"}},
        {"properties": {"child": {"$ref": "#"}}},
    ],
)
def test_what_stays_within_it_is_not(schema: dict[str, Any]) -> None:
    assert SchemaCost(schema).problems == []


def test_alternatives_within_alternatives_multiply() -> None:
    assert SchemaCost(doubling(40)).steps(1) > 2**40


def test_recursion_multiplies_with_the_depth_of_the_payload() -> None:
    twice = {"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}
    assert SchemaCost(twice).steps(30) > 2**30 > SchemaCost(twice).steps(3)


def test_properties_and_plain_recursion_do_not() -> None:
    flat = {"properties": {f"p{n}": {"type": "string"} for n in range(1000)}}
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    assert SchemaCost(flat).steps(2) == 2
    assert SchemaCost(tree).steps(100) == 201
