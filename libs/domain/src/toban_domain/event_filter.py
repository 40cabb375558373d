"""Filters of triggers: paths into an event's payload, each with a condition; all conditions must hold.

A path consists of keys joined by dots (`order.customer.id`); in a list, a number is the index (`items.0.sku`). A condition is
a literal (equality), a list of literals (membership), or operators that must all hold: `exists`, `prefix`, `suffix`, `gt`, `gte`,
`lt`, `lte`, `not`. Values are compared as JSON: strings never equal numbers, true is not 1, 1 is 1.0. An operator on a value does not
hold when the value is missing or of another type; `not` negates its condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from toban_domain.payload import kind_of

MAX_CONDITIONS = 50
MAX_DEPTH = 20


class Missing:
    """Type of MISSING, the result for a path without a value."""


MISSING: Final = Missing()

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "gt": lambda value, bound: value > bound,
    "gte": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "lte": lambda value, bound: value <= bound,
}
_TEXT: Mapping[str, Callable[[str, str], bool]] = {"prefix": str.startswith, "suffix": str.endswith}
OPERATORS = ("exists", *_TEXT, *_COMPARE, "not")


def split_path(path: str) -> tuple[str, ...]:
    """The keys of a path; empty when the path is invalid."""
    parts = tuple(path.split("."))
    return parts if all(parts) and len(parts) <= MAX_DEPTH else ()


def value_at(payload: Any, parts: tuple[str, ...]) -> Any:
    """The value at a path, MISSING when there is none."""
    value = payload
    for part in parts:
        if isinstance(value, Mapping):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 7 and int(part) < len(value):
            value = value[int(part)]
        else:
            return MISSING
    return value


def matches(conditions: Mapping[str, Any], payload: Mapping[str, Any]) -> bool:
    """Whether every condition holds for the payload. Never raises."""
    return all(_holds(condition, value_at(payload, split_path(path))) for path, condition in conditions.items())


def _holds(condition: Any, value: Any) -> bool:
    if isinstance(condition, Mapping):
        return all(_operator(name, wanted, value) for name, wanted in condition.items())
    if isinstance(condition, list):
        return any(_equal(literal, value) for literal in condition)
    return _equal(condition, value)


def _operator(name: str, wanted: Any, value: Any) -> bool:
    if name == "exists":
        return bool(wanted) is (value is not MISSING)
    if name == "not":
        return not _holds(wanted, value)
    if name in _TEXT:
        return isinstance(value, str) and _TEXT[name](value, wanted)
    return _is_number(value) and name in _COMPARE and bool(_COMPARE[name](value, wanted))


def _equal(literal: Any, value: Any) -> bool:
    same = type(literal) is type(value) or (_is_number(literal) and _is_number(value))
    return same and bool(literal == value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def condition_problem(condition: Any, *, inside_not: bool = False) -> tuple[str, str, str]:
    """The problem of a condition: (path inside it, message, hint); the message is "" when the condition is valid."""
    if isinstance(condition, list):
        return _list_problem(condition)
    if not isinstance(condition, Mapping):
        valid = condition is None or isinstance(condition, str | int | float)
        return ("", "" if valid else f"must be a literal, is {kind_of(condition)}", "put dates into quotes")
    if not condition:
        return ("", "has no operator", f"use {', '.join(OPERATORS)}")
    for name, wanted in condition.items():
        message, hint = _operator_problem(name, wanted, inside_not=inside_not)
        if message:
            return (f".{name}", message, hint)
        if name == "not":
            below, message, hint = condition_problem(wanted, inside_not=True)
            if message:
                return (f".not{below}", message, hint)
    return ("", "", "")


def _list_problem(condition: list[Any]) -> tuple[str, str, str]:
    if not condition:
        return ("", "is an empty list, which nothing is one of", "list the values that are wanted")
    for index, item in enumerate(condition):
        if item is not None and not isinstance(item, str | int | float):
            return (f"[{index}]", f"must be a literal, is {kind_of(item)}", "list texts, numbers, true, false or null")
    return ("", "", "")


def _operator_problem(name: object, wanted: Any, *, inside_not: bool) -> tuple[str, str]:
    if name not in OPERATORS:
        return "is not an operator", f"use {', '.join(OPERATORS)}; for a key inside write its path, such as order.id"
    if name == "not":
        return ("stands inside another not", "take both away") if inside_not else ("", "")
    if name == "exists":
        return ("", "") if isinstance(wanted, bool) else (f"must be true or false, is {kind_of(wanted)}", "")
    if name in _TEXT:
        return ("", "") if isinstance(wanted, str) and wanted else (f"must be text, is {kind_of(wanted)}", "quote it")
    return ("", "") if _is_number(wanted) else (f"must be a number, is {kind_of(wanted)}", "write it without quotes")
