"""Payload mappings: references keep the type, texts take the text, what is missing is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event_mapping import EventFacts, fill, reference_problem, references, texts_of, whole_reference

EVENT = EventFacts(
    id=12,
    type="order.paid",
    key="k-1",
    payload={"order": {"id": 7, "tags": ["a", "b"], "note": None, "name": "Ada {{ x }}"}},
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


def fill_one(text: Any, event: EventFacts = EVENT) -> Any:
    return fill({"x": text}, event)["x"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ event.payload.order.id }}", 7),
        (" {{event.payload.order.id}} ", 7),
        ("{{ event.payload.order.tags }}", ["a", "b"]),
        ("{{ event.payload.order.tags.1 }}", "b"),
        ("{{ event.payload.order.note }}", None),
        ("{{ event.payload }}", EVENT.payload),
        ("{{ event.type }}", "order.paid"),
        ("{{ event.id }}", 12),
        ("{{ event.dedupe_key }}", "k-1"),
        ("order {{ event.payload.order.id }} of {{ event.type }}", "order 7 of order.paid"),
        ("{{ event.payload.order.tags }}!", '["a","b"]!'),
        ("note: {{ event.payload.order.note }}", "note: "),
        ("{{ event.payload.order.name }}", "Ada {{ x }}"),
        ("<{{ event.payload.order.name }}>", "<Ada {{ x }}>"),
        ("plain", "plain"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        (5, 5),
        ([{"deep": "{{ event.id }}"}], [{"deep": 12}]),
    ],
)
def test_fill(text: Any, value: Any) -> None:
    filled = fill_one(text)
    assert filled == value and type(filled) is type(value)


def test_an_event_without_a_key_has_null_for_it() -> None:
    event = EventFacts(id=1, type="t", key="", payload={})
    assert fill_one("{{ event.dedupe_key }}", event) is None
    assert fill_one("<{{ event.dedupe_key }}>", event) == "<>"


@given(values)
def test_a_whole_reference_is_the_value_itself(value: Any) -> None:
    event = EventFacts(id=1, type="t", key="", payload={"v": value})
    filled = fill_one("{{ event.payload.v }}", event)
    assert json.dumps(filled) == json.dumps(value)
    assert fill("{{ event.payload }}", event) == {"v": value}


@given(st.text(max_size=20))
def test_text_without_a_reference_stays(text: str) -> None:
    if "{{" not in text:
        assert fill_one(text) == text and references(text) == []


@given(values)
def test_a_mapping_without_references_is_what_it_says(value: Any) -> None:
    if not any("{{" in text for _, text in texts_of(value)):
        assert fill({"x": value}, EVENT) == {"x": value}


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"a": {"b": ["{{ event.payload.order.nr }}"]}}, "payload.a.b[0]: the event has no payload.order.nr"),
        ({"a": "x {{ event.payload.order.tags.2 }}"}, "payload.a: the event has no payload.order.tags.2"),
        ({"a": "{{ event.payload.order.id.x }}"}, "the event has no payload.order.id.x"),
        ("{{ event.payload.order.id }}", "is a number, not an object"),
        ("{{ event.payload.nothing }}", "payload: the event has no payload.nothing"),
    ],
)
def test_what_is_missing_is_named(mapping: Any, words: str) -> None:
    with pytest.raises(TobanError) as caught:
        fill(mapping, EVENT)
    assert caught.value.code is ErrorCode.PAYLOAD_INVALID and words in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ event.payload", "without }}"),
        ("a {{ b {{ event.id }}", "which an event does not have"),
        ("{{ event.paylod.x }}", "'event.paylod.x'"),
        ("{{ event.payload. }}", "'event.payload.'"),
        ("{{ payload.x }}", "'payload.x'"),
        ("{{}}", "''"),
        ("{{ event.payload.a }} and {{ event.kind }}", "'event.kind'"),
    ],
)
def test_what_is_no_reference(text: str, words: str) -> None:
    assert words in reference_problem(text)[0]


def test_whole_references() -> None:
    assert whole_reference("{{ event.id }}") == "event.id"
    assert [whole_reference(text) for text in ("x {{ event.id }}", "{{ event.id }}{{ event.id }}", "event.id")] == [
        ""
    ] * 3
