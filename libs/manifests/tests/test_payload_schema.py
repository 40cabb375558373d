"""What is wrong with schemas of jobs: where, and what to write instead."""

from typing import Any

import pytest

from toban_domain.job import JobSpec, StepSpec
from toban_manifests.payload_schema import schema_problems
from toban_manifests.read import Manifest


def lines(**schemas: Any) -> list[str]:
    spec = JobSpec(name="j", steps=(StepSpec(id="s", body={"argv": ["true"]}),), **schemas)
    return [one.line() for one in schema_problems(Manifest("a.yaml", "Job", spec))]


@pytest.mark.parametrize(
    ("schema", "path", "words"),
    [
        ({"type": "objekt"}, ".type", '"objekt" is no type; known are array, boolean, integer, null, number, object'),
        (
            {"properties": {"a": {"type": ["string", "x"]}}},
            ".properties.a.type",
            '["string","x"] is no type; known are',
        ),
        ({"pattern": "(?=x)"}, ".pattern", "with patterns that RE2 knows"),
        ({"required": "a"}, ".required", '"a" is not of type "array"; write a JSON Schema'),
        ({"allOf": [{"minimum": "x"}]}, ".allOf[0].minimum", '"x" is not of type "number"'),
        ({"$ref": "http://127.0.0.1:9/a"}, ".$ref", "refers to something outside of the schema; refer to a part"),
    ],
)
def test_a_mistake_names_its_place_in_the_schema(schema: dict[str, Any], path: str, words: str) -> None:
    for subject in ("payload", "result"):
        [line] = lines(**{f"{subject}_schema": schema})
        assert line.startswith(f"a.yaml: spec.{subject}_schema{path}: ") and words in line
        assert "keyword" not in line


def test_both_schemas_are_checked_and_sound_ones_pass() -> None:
    assert len(lines(payload_schema={"type": "x"}, result_schema={"type": "y"})) == 2
    assert lines(payload_schema={"type": "object"}, result_schema={"pattern": "^a+$"}) == []
