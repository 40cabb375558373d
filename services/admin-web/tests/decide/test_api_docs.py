"""What the page about the API has of the OpenAPI document."""

import json

from toban_admin_web.decide.api_docs import Input, operations_by_tag

SCHEMAS = {
    "Body": {
        "required": ["name", "kind", "steps"],
        "properties": {
            "name": {"type": "string", "description": "Of it."},
            "kind": {"enum": ["a", "b"]},
            "steps": {"type": "array", "items": {"$ref": "#/components/schemas/Step"}},
            "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
            "more": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
    },
    "Step": {"required": ["argv"], "properties": {"argv": {"type": "array", "items": {"type": "string"}}}},
}
DOCUMENT = {
    "components": {"schemas": SCHEMAS},
    "paths": {
        "/api/v1/b/{id}": {
            "put": {
                "operationId": "put_b",
                "summary": "Makes it.",
                "description": "Needs role admin.",
                "tags": ["b"],
                "parameters": [
                    {
                        "name": "id",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "integer", "minimum": 0, "maximum": 9},
                    },
                    {"name": "state", "in": "query", "description": "Which.", "schema": {"enum": ["", "on", "off"]}},
                ],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Body"}}}},
            }
        },
        "/api/v1/a": {"get": {"operationId": "get_a", "summary": "Reads.", "tags": ["a"], "parameters": []}},
    },
}


def test_operations_by_tag_with_their_inputs() -> None:
    found = operations_by_tag(DOCUMENT)
    assert list(found) == ["a", "b"]
    [get], [put] = found.values()
    assert (get.verb, get.reads, get.example, get.fields) == ("GET", True, "", ())
    assert (put.verb, put.path, put.reads, put.text) == ("PUT", "/api/v1/b/{id}", False, "Needs role admin.")
    assert put.parameters == (
        Input(name="id", place="path", required=True, kind="integer ≥ 0 ≤ 9", text=""),
        Input(
            name="state", place="query", required=False, kind='"" | "on" | "off"', text="Which.", choices=("on", "off")
        ),
    )
    assert [(field.name, field.kind, field.required) for field in put.fields] == [
        ("name", "string", True),
        ("kind", '"a" | "b"', True),
        ("steps", "array of any", True),
        ("steps[].argv", "array of string", True),
        ("at", "string date-time", False),
        ("more", "any", False),
    ]
    assert json.loads(put.example) == {"name": "", "kind": "a", "steps": []}
