"""Filters: what holds, what does not, and that they hold or not for every payload."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.event_filter import MISSING, OPERATORS, condition_problem, matches, split_path, value_at

PAYLOAD: dict[str, Any] = {
    "order": {
        "id": 7,
        "total": 99.5,
        "country": "DE",
        "items": [{"sku": "a-1"}, {"sku": "b-2"}],
        "gift": False,
        "note": None,
    }
}
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=4))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0"]), inner),
    max_leaves=8,
)
payloads = st.dictionaries(st.sampled_from(["a", "b"]), values)
paths = st.lists(st.sampled_from(["a", "b", "0", "1"]), min_size=1, max_size=3).map(".".join)
numbers = st.one_of(st.integers(), st.floats(allow_nan=False))
operators = st.fixed_dictionaries(
    {},
    optional={
        "exists": st.booleans(),
        "prefix": st.text(min_size=1, max_size=2),
        "suffix": st.text(min_size=1, max_size=2),
        "gt": numbers,
        "gte": numbers,
        "lt": numbers,
        "lte": numbers,
    },
).filter(bool)
conditions = st.one_of(scalars, st.lists(scalars, min_size=1, max_size=3), operators)


@pytest.mark.parametrize(
    ("path", "condition", "holds"),
    [
        ("order.id", 7, True),
        ("order.id", 7.0, True),
        ("order.id", "7", False),
        ("order.gift", False, True),
        ("order.gift", 0, False),
        ("order.id", True, False),
        ("order.note", None, True),
        ("order.nothing", None, False),
        ("order.country", ["AT", "DE"], True),
        ("order.country", ["AT", "FR"], False),
        ("order.items.1.sku", "b-2", True),
        ("order.items.2.sku", "b-2", False),
        ("order.items.-1.sku", {"exists": True}, False),
        ("order.items.x", {"exists": True}, False),
        ("order.items", {"exists": True}, True),
        ("order.note", {"exists": True}, True),
        ("order.nothing", {"exists": False}, True),
        ("order", {"exists": False}, False),
        ("order.country", {"prefix": "D"}, True),
        ("order.country", {"prefix": "D", "suffix": "D"}, False),
        ("order.id", {"prefix": "7"}, False),
        ("order.total", {"gt": 99.5}, False),
        ("order.total", {"gte": 99.5}, True),
        ("order.total", {"gt": 50, "lt": 100}, True),
        ("order.country", {"gt": 1}, False),
        ("order.gift", {"lt": 1}, False),
        ("order.nothing", {"lt": 1}, False),
        ("order.country", {"not": "FR"}, True),
        ("order.country", {"not": ["DE", "FR"]}, False),
        ("order.country", {"not": {"prefix": "D"}}, False),
        ("order.nothing", {"not": "FR"}, True),
        ("order.nothing", {"not": "FR", "exists": True}, False),
    ],
)
def test_conditions(path: str, condition: Any, holds: bool) -> None:
    assert condition_problem(condition)[1] == ""
    assert matches({path: condition}, PAYLOAD) is holds


def test_all_conditions_have_to_hold() -> None:
    assert matches({}, PAYLOAD)
    assert matches({"order.id": 7, "order.country": "DE"}, PAYLOAD)
    assert not matches({"order.id": 7, "order.country": "FR"}, PAYLOAD)


@given(st.dictionaries(paths, conditions, max_size=3), payloads)
def test_a_filter_says_yes_or_no_to_every_payload(wanted: dict[str, Any], payload: dict[str, Any]) -> None:
    assert all(condition_problem(condition)[1] == "" for condition in wanted.values())
    assert matches(wanted, payload) is all(matches({path: condition}, payload) for path, condition in wanted.items())


@given(paths, conditions, payloads)
def test_not_holds_exactly_when_its_condition_does_not(path: str, condition: Any, payload: dict[str, Any]) -> None:
    assert matches({path: {"not": condition}}, payload) is not matches({path: condition}, payload)


@given(paths, st.lists(scalars, min_size=1, max_size=3), payloads)
def test_a_list_is_one_of_its_literals(path: str, literals: list[Any], payload: dict[str, Any]) -> None:
    assert matches({path: literals}, payload) is any(matches({path: literal}, payload) for literal in literals)


@given(paths, payloads)
def test_a_value_equals_itself_where_it_is(path: str, payload: dict[str, Any]) -> None:
    value = value_at(payload, split_path(path))
    assert matches({path: {"exists": True}}, payload) is (value is not MISSING)
    if value is not MISSING and not isinstance(value, list | dict):
        assert matches({path: value}, payload)


def test_no_number_is_too_large_to_compare() -> None:
    assert matches({"n": {"gt": 1.5}}, {"n": 10**400})
    assert matches({"n": {"lt": 10**400}}, {"n": 1.5e308})


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", ".".join("a" * 21)])
def test_what_is_no_path(path: str) -> None:
    assert split_path(path) == ()


@pytest.mark.parametrize(
    ("condition", "below", "words"),
    [
        ({}, "", "has no operator"),
        ([], "", "nothing is one of"),
        ([1, {"gt": 5}], "[1]", "must be a literal"),
        ({"gr": 5}, ".gr", "is not an operator"),
        ({"id": {"gt": 5}}, ".id", "is not an operator"),
        ({"gt": "5"}, ".gt", "must be a number, is text"),
        ({"gt": True}, ".gt", "must be a number"),
        ({"prefix": 5}, ".prefix", "must be text"),
        ({"prefix": ""}, ".prefix", "must be text"),
        ({"exists": "yes"}, ".exists", "must be true or false"),
        ({"not": {"lt": "x"}}, ".not.lt", "must be a number"),
        ({"not": {"not": 5}}, ".not.not", "another not"),
        ({"not": [{}]}, ".not[0]", "must be a literal"),
    ],
)
def test_what_is_no_condition(condition: Any, below: str, words: str) -> None:
    found, message, _ = condition_problem(condition)
    assert found == below and words in message


def test_every_operator_is_known() -> None:
    assert set(OPERATORS) == {"exists", "prefix", "suffix", "gt", "gte", "lt", "lte", "not"}
