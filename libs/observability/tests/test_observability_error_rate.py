"""The share of errors over the last minutes, from counters."""

from __future__ import annotations

import itertools

import pytest

from toban_observability import metrics
from toban_observability.error_rate import ErrorRate

_numbers = itertools.count(1)


@pytest.fixture
def counter():
    """A counter of its own: its name, and `count(result, times)`."""
    name = f"toban_test_rate_{next(_numbers)}_total"
    made = metrics.counter(name, "For this test.", ("result",))
    return name, lambda result, times=1: made.labels(result).inc(times)


def rate(name: str, **fields: float) -> ErrorRate:
    return ErrorRate({name: lambda labels: labels["result"] == "error"}, **fields)


def test_nothing_counted_is_ok(counter) -> None:
    name, _count = counter
    made = rate(name)
    assert made.check().value == {"rate": 0.0, "errors": 0, "of": 0}
    made.sample(0.0)
    assert (made.check().status, made.check().value["of"]) == ("ok", 0)


def test_only_what_came_within_the_window_counts(counter) -> None:
    name, count = counter
    made = rate(name, window_seconds=300)
    count("error", 50)
    made.sample(0.0)
    count("ok", 90)
    count("error", 10)
    made.sample(100.0)
    assert made.check().value == {"rate": 0.1, "errors": 10, "of": 100}, "not what was before the first look"
    for at in range(105, 401, 5):
        made.sample(float(at))
    assert made.check().value == {"rate": 0.0, "errors": 0, "of": 0}
    count("ok")
    made.sample(405.0)
    assert made.check().value == {"rate": 0.0, "errors": 0, "of": 1}


@pytest.mark.parametrize(
    ("errors", "fine", "status"), [(4, 0, "ok"), (5, 95, "warning"), (5, 96, "ok"), (50, 0, "warning"), (0, 1000, "ok")]
)
def test_many_errors_of_many_calls_warn(counter, errors: int, fine: int, status: str) -> None:
    name, count = counter
    made = rate(name)
    made.sample(0.0)
    count("error", errors)
    count("ok", fine)
    made.sample(5.0)
    assert made.check().status == status


def test_a_counter_that_is_not_declared_yet_has_no_errors() -> None:
    made = ErrorRate({"toban_never_declared_total": lambda labels: True})
    made.sample(0.0)
    assert made.check().status == "ok"
