"""Payloads: canonical JSON and its limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import PAYLOAD_LIMIT, canonical_json, check_size, merge_payload, parse_payload


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_empty_payloads(text: str) -> None:
    assert parse_payload(text) == {}


@pytest.mark.parametrize(
    "text",
    ["[]", "1", "null", '"x"', "{", "{'a': 1}", '{"a": NaN}', '{"a": Infinity}', '{"a": "\\u0000"}', "[" * 100_000],
)
def test_payloads_that_are_none(text: str) -> None:
    with pytest.raises(TobanError) as caught:
        parse_payload(text)
    assert caught.value.code is ErrorCode.PAYLOAD_INVALID


def test_the_limit_is_on_bytes_of_the_merged_payload() -> None:
    around = len(canonical_json({"a": ""}))
    fits = {"a": "x" * (PAYLOAD_LIMIT - around)}
    check_size(fits)
    for given_payload in ({"a": fits["a"] + "x"}, {"a": "ä" * (PAYLOAD_LIMIT // 2)}):
        with pytest.raises(TobanError) as caught:
            check_size(given_payload)
        assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
    with pytest.raises(TobanError):
        merge_payload(fits, {"b": 1})
    assert merge_payload({"a": 1, "b": {"x": 1}}, {"b": {"y": 2}}) == {"a": 1, "b": {"y": 2}}


def test_what_utf8_cannot_say_is_refused() -> None:
    with pytest.raises(TobanError) as caught:
        check_size({"a": "\ud800"})
    assert caught.value.code is ErrorCode.PAYLOAD_INVALID


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_canonical_json_is_one_text_a_value(value: dict[str, Any]) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(dict(reversed(value.items()))) == text
