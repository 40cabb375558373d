"""Payloads: canonical JSON and its limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import (
    MAX_NESTING,
    PAYLOAD_LIMIT,
    canonical_json,
    check_payload,
    deeper_than,
    merge_payload,
    parse_payload,
)


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
    check_payload(fits)
    for given_payload in ({"a": fits["a"] + "x"}, {"a": "ä" * (PAYLOAD_LIMIT // 2)}):
        with pytest.raises(TobanError) as caught:
            check_payload(given_payload)
        assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
    with pytest.raises(TobanError):
        merge_payload(fits, {"b": 1})
    assert merge_payload({"a": 1, "b": {"x": 1}}, {"b": {"y": 2}}) == {"a": 1, "b": {"y": 2}}


def test_what_utf8_cannot_say_is_refused() -> None:
    with pytest.raises(TobanError) as caught:
        check_payload({"a": "\ud800"})
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


def nested(levels: int) -> str:
    """A payload of so many levels, itself included."""
    return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 450, 700, 900, 3000, 16_000])
def test_deep_payloads_are_refused_with_a_reason(levels: int) -> None:
    with pytest.raises(TobanError) as caught:
        parse_payload(nested(levels))
    assert caught.value.code is ErrorCode.PAYLOAD_INVALID and f"{MAX_NESTING} levels" in caught.value.message


def test_the_deepest_payload_that_fits() -> None:
    assert parse_payload(nested(MAX_NESTING)) == json.loads(nested(MAX_NESTING))
    with pytest.raises(TobanError):
        merge_payload({}, json.loads(nested(MAX_NESTING + 1)))


def depth(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0


@given(json_values, st.integers(0, 8))
def test_depth_is_counted_in_objects_and_lists(value: Any, levels: int) -> None:
    assert deeper_than(value, levels) == (depth(value) > levels)


def has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_nul(key) or has_nul(item) for key, item in value.items())
    return any(map(has_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


tricky = st.text(st.sampled_from('\0\\u01"')) | st.sampled_from(["\\u0000", "\\\0", "\\\\u0000"])


@given(st.dictionaries(tricky, st.lists(tricky), max_size=3))
def test_a_nul_is_found_and_nothing_that_looks_like_one(value: dict[str, Any]) -> None:
    if has_nul(value):
        with pytest.raises(TobanError) as caught:
            check_payload(value)
        assert "NUL" in caught.value.message
    else:
        assert check_payload(value) == canonical_json(value)
