"""Manifests of kind EventTrigger: sound ones become specs, wrong ones say what is wrong and where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import TriggerSpec, check_event
from toban_manifests.read import Document, find_problems, read_manifests


def trigger(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "toban/v1",
        "kind": "EventTrigger",
        "metadata": {"name": "t"},
        "spec": {"event_type": "order.paid", "job": "x", **spec},
    }


def read(body: object) -> TriggerSpec:
    spec = read_manifests([Document("a.yaml", body)], check_rule=lambda rule: [])[0].spec
    assert isinstance(spec, TriggerSpec)
    return spec


def problems(body: object) -> list[str]:
    return [problem.line() for problem in find_problems([Document("a.yaml", body)], check_rule=lambda rule: [])[1]]


@pytest.mark.seed(44)
def test_a_full_trigger() -> None:
    conditions = {"order.total": {"gte": 100, "lt": 1000}, "order.country": ["DE", "AT"], "order.test": {"not": True}}
    payload = {"order": "{{ event.payload.order.id }}", "note": "by {{ event.type }}", "nested": [{"n": 1}]}
    body = trigger(enabled=False, filter=conditions, payload=payload)
    body["metadata"] |= {"description": "text", "labels": {"team": "ops"}}
    spec = read(body)
    assert (spec.name, spec.event_type, spec.job, spec.description, spec.labels, spec.enabled) == (
        "t",
        "order.paid",
        "x",
        "text",
        {"team": "ops"},
        False,
    )
    assert (spec.filter, spec.payload) == (conditions, payload)
    assert TriggerSpec.from_json(spec.to_json()) == spec


def test_the_least_trigger() -> None:
    assert read(trigger()).to_json() == {"name": "t", "event_type": "order.paid", "job": "x"}
    assert read(trigger(payload="{{ event.payload }}")).payload == "{{ event.payload }}"


texts = st.text(max_size=6)
specs = st.builds(
    TriggerSpec,
    name=texts,
    event_type=texts,
    job=texts,
    description=texts,
    labels=st.dictionaries(texts, texts, max_size=2),
    enabled=st.booleans(),
    filter=st.dictionaries(texts, st.integers() | st.lists(texts), max_size=2),
    payload=st.dictionaries(texts, texts | st.integers(), max_size=2) | texts,
)


@given(specs)
def test_specs_go_through_json_and_back(spec: TriggerSpec) -> None:
    assert TriggerSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"event_type": None}, "spec.event_type: is missing"),
        ({"event_type": ""}, "spec.event_type: is empty; write a value after `event_type:`"),
        (
            {"event_type": "order paid"},
            "spec.event_type: 'order paid' is not a type of event; write something like order.paid",
        ),
        ({"event_type": "x" * 129}, "is not a type of event"),
        ({"job": None}, "spec.job: is missing"),
        ({"job": ""}, "spec.job: is empty"),
        ({"job": "A"}, "spec.job: 'A' is not a name"),
        ({"fliter": {}}, "spec.fliter: is not a known key; did you mean 'filter'?"),
        ({"when": {}}, "spec.when: is not a known key; did you mean 'filter'?"),
        ({"event": "x"}, "did you mean 'event_type'?"),
        ({"enabled": "yes"}, "spec.enabled: must be true or false"),
        ({"filter": []}, "spec.filter: must be a mapping, is a list"),
        ({"filter": {"a..b": 1}}, "spec.filter: 'a..b' is not a path"),
        ({"filter": {5: 1}}, "spec.filter: 5 is not a path"),
        ({"filter": {"a": {"gr": 1}}}, "spec.filter.a.gr: is not an operator; use exists"),
        ({"filter": {"a": {"gt": "1"}}}, "spec.filter.a.gt: must be a number, is text; write it without quotes"),
        ({"filter": {f"a{n}": 1 for n in range(51)}}, "spec.filter: has 51 conditions; use at most 50"),
        (
            {"payload": "all of it"},
            'spec.payload: must be a mapping, is text; write `name: value` lines below it, or "{{ event',
        ),
        ({"payload": "{{ event.paylod }}"}, "did you mean 'event.payload'?"),
        (
            {"payload": {"a": [{"b": "{{ event.typ }}"}]}},
            "spec.payload.a[0].b: refers to 'event.typ', which an event does not have",
        ),
        ({"payload": {"a": "{{ event.id"}}, "spec.payload.a: has {{ without }}"),
        ({"payload": {"a": "{{ event.id }}" * 101}}, "spec.payload: has more than 100 references"),
        ({"payload": {"a": "x" * 33_000}}, "spec.payload: the payload has"),
        ({"payload": 5}, "spec.payload: must be a mapping, is a number"),
    ],
)
def test_what_is_wrong_is_told(spec: dict[str, Any], line: str) -> None:
    found = problems(trigger(**spec))
    assert len(found) == 1 and line in found[0]


def test_two_triggers_of_one_name() -> None:
    documents = [Document("a.yaml", trigger()), Document("b.yaml", trigger())]
    _, found = find_problems(documents, check_rule=lambda rule: [])
    assert [problem.line() for problem in found] == [
        "b.yaml: metadata.name: EventTrigger 't' is already in a.yaml; give each its own name"
    ]


@pytest.mark.parametrize("event_type", ["a", "order.paid", "a/b:c_d-e", "9", "x" * 128])
def test_types_of_events(event_type: str) -> None:
    check_event(event_type, "k" * 200)


@pytest.mark.parametrize(
    ("event_type", "key"),
    [("", ""), (".a", ""), ("a\n", ""), ("ä", ""), ("x" * 129, ""), ("a", "k" * 201), ("a", "\0")],
)
def test_what_is_no_event(event_type: str, key: str) -> None:
    with pytest.raises(TobanError) as caught:
        check_event(event_type, key)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
