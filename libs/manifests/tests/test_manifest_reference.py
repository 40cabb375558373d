"""The published JSON Schema and the reference made of it: current, complete, and no stricter than the models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.job import JobSpec
from toban_manifests.jobs import Job
from toban_manifests.read import MODELS, Document, find_problems
from toban_manifests.reference import SCHEMA, Field, flow, kinds, metadata
from toban_manifests.schema import json_schema, main
from toban_manifests.yaml_text import parse_yaml

ROOT = Path(__file__).parents[3]
EXAMPLES = [
    pytest.param(body, id=f"{file.stem}-{number}")
    for file in sorted((ROOT / "examples").rglob("*.yaml"))
    for number, body in enumerate(yaml.safe_load_all(file.read_text(encoding="utf-8")))
]


STEPS = [
    {"argv": ["tar"], "id": "a", "type": "command"},
    {"type": "python", "callable": "a.b:c", "python_path": ["/srv"]},
    {"type": "python", "callable": "a.b:c", "warm": True, "preload": ["a"], "interpreter": "/srv/bin/python"},
    {
        "type": "django",
        "command": "a",
        "args": ["b"],
        "project": "/srv",
        "settings": "a.b",
        "interpreter": "/srv/python",
    },
    {
        "type": "http",
        "http": {"url": "https://a.example", "expected_status": [200, "300-399"], "retry": {"attempts": 2}},
    },
]
BACKOFF = {"initial": 1, "multiplier": 2, "max": 5.5, "jitter": 0}
BOX = {"image": "a:1", "argv": ["x"], "mounts": [{"source": "/a", "target": "/b"}], "limits": {"cpus": 0.5, "pids": 9}}
POD = {"image": "a:1", "argv": ["x"], "user": "1:2", "node_selector": {"a.b/c": ""}, "requests": {"memory_mb": 5}}
SOUND: list[tuple[str, dict[str, Any]]] = [
    ("Job", {"steps": STEPS, "retry": {"max_attempts": 2, "backoff_seconds": BACKOFF}, "logs": {"redact": ["A"]}}),
    (
        "Job",
        {"steps": STEPS[:1], "retry": {"backoff_seconds": [1, 5.5]}, "on_lease_loss": "kill", "env": {"LANG": "C"}},
    ),
    ("Job", {"steps": [{"type": "container", "container": BOX}]}),
    ("Job", {"steps": [{"type": "kubernetes", "kubernetes": POD}]}),
    ("Schedule", {"job": "x", "cron": "0 3 * * *", "dst": {"fold": "both"}, "catch_up": "one", "start": ""}),
    ("Schedule", {"job": "x", "daily_at": "03:00", "catch_up": {"policy": "all", "max": 5}, "payload": {"a": None}}),
    ("EventTrigger", {"event_type": "a.b", "job": "x", "filter": {"a.b": {"gte": 1}}, "payload": {"a": [1]}}),
    ("EventTrigger", {"event_type": "a.b", "job": "x", "payload": "{{ event.payload }}"}),
]


@pytest.fixture(scope="module")
def published() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_the_file_is_current() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == json_schema()


def test_a_file_that_is_not_current_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("toban_manifests.schema.SCHEMA", tmp_path / "a.json")
    assert main(["--check"]) == 1
    assert "run scripts/gen-docs" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_every_kind_is_described() -> None:
    assert set(kinds()) == set(MODELS)
    body = {"apiVersion": "toban/v1", "kind": "Nothing", "metadata": {"name": "x"}, "spec": {}}
    _, [problem] = find_problems([Document("a", body)], check_rule=lambda rule: [])
    assert problem.hint == f"use {' or '.join(kinds())}"


@pytest.mark.parametrize("kind", MODELS)
def test_every_description_is_complete(kind: str) -> None:
    def check(fields: tuple[Field, ...]) -> None:
        assert fields
        for one in fields:
            assert one.meaning and one.type, one.key
            assert one.example or one.fields, f"{one.key} has no example"
            assert one.default or one.unset or one.fields, f"{one.key} does not say what leaving it out means"
            assert "\n" not in one.meaning
            if one.fields:
                check(one.fields)

    check(kinds()[kind].fields)
    check(metadata())


def test_the_reference_goes_into_lists_and_alternatives() -> None:
    job = {one.key: one for one in kinds()["Job"].fields}
    retry = {one.key: one for one in job["retry"].fields}
    assert job["steps"].listed and job["steps"].unset == "required"
    assert {"argv", "callable"} <= {one.key for one in job["steps"].fields}
    assert [one.key for one in retry["backoff_seconds"].fields] == ["initial", "multiplier", "max", "jitter"]
    assert job["on_lease_loss"].type == "freeze, kill, continue"
    assert (job["env"].type, job["env"].default, job["retry"].type) == ("text to text", "{}", "mapping")


@pytest.mark.parametrize("body", EXAMPLES)
def test_examples_fit_the_published_schema(body: Any, published: jsonschema_rs.Draft202012Validator) -> None:
    assert [error.message for error in published.iter_errors(body)] == []


@pytest.mark.parametrize(("kind", "spec"), SOUND)
def test_what_the_reader_takes_fits_the_published_schema(
    kind: str, spec: dict[str, Any], published: jsonschema_rs.Draft202012Validator
) -> None:
    body = {"apiVersion": "toban/v1", "kind": kind, "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": spec}
    assert find_problems([Document("a", body)], check_rule=lambda rule: [])[1] == []
    assert [error.message for error in published.iter_errors(body)] == []


@pytest.mark.parametrize(
    "spec",
    [
        {"steps": []},
        {"steps": [{"argv": "true"}]},
        {"steps": [{"argv": ["true"]}], "timeout": 5},
        {"steps": [{"argv": ["true"]}], "retry": {"backoff_seconds": {"jitter": 2}}},
        {"steps": [{"argv": ["true"]}], "on_lease_loss": "go_on"},
        {"steps": [{"type": "python", "argv": ["true"]}]},
        {"steps": [{"argv": ["true"], "warm": True}]},
        {"steps": [{"type": "django", "command": "a", "project": "/srv"}]},
        {"steps": [{"type": "http", "argv": ["true"]}]},
        {"steps": [{"type": "container", "container": {"argv": ["true"]}}]},
        {"steps": [{"type": "kubernetes", "kubernetes": {"image": "a", "namespace": "A"}}]},
        {"steps": [{"argv": ["true"], "http": {"url": "https://a.example"}}]},
        {"steps": [{"type": "http", "http": {"method": "GET"}}]},
    ],
)
def test_the_published_schema_refuses_mistakes(
    spec: dict[str, Any], published: jsonschema_rs.Draft202012Validator
) -> None:
    body = {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}
    assert not published.is_valid(body)
    assert find_problems([Document("a", body)], check_rule=lambda rule: [])[1]


texts = st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), max_size=6) | st.sampled_from(
    ["true", "No", "on", "1:30", "a: b", "-", "~"]
)
values = st.recursive(
    st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@given(values)
def test_examples_are_written_as_yaml_reads_them(value: Any) -> None:
    assert yaml.safe_load(flow(value)) == value


def test_manifests_in_the_documents_are_valid() -> None:
    """Whole ones, and parts of the spec of a job."""
    found = []
    for path in (ROOT / "docs").rglob("*.md"):
        for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            for body in parse_yaml(path.name, block.encode()) if "!override" not in block else ():
                assert isinstance(body, dict)
                if "apiVersion" not in body:
                    spec = body.get("spec", body)
                    if not spec.keys() <= Job.model_fields.keys():
                        continue
                    whole = {"steps": [{"argv": ["true"]}], **spec}
                    body = {
                        "apiVersion": "toban/v1",
                        "kind": "Job",
                        "metadata": {"name": f"part-{len(found)}"},
                        "spec": whole,
                    }
                found.append(Document(path.name, body))
    sound, problems = find_problems(found, check_rule=lambda _: [])
    # Two documents may give a name, and `toban apply` makes relative paths absolute.
    accepted = ("is already in", "is not absolute")
    assert [one.line() for one in problems if not any(words in one.message for words in accepted)] == []
    assert any(isinstance(one.spec, JobSpec) and one.spec.notify for one in sound)
