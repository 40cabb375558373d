"""JSON values of the cluster, read for a page."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_admin_web.decide.json_fields import Progress, indent, parse_health, parse_json, parse_progress
from toban_domain.payload import MAX_NESTING, deeper_than


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, None),
        ([], None),
        ("{", None),
        ({"percentage": True}, None),
        ({"percentage": 140, "summary": "x"}, Progress(100.0, "x")),
        ({"percentage": -1}, Progress(0.0, "")),
        ({"summary": 7, "percentage": 40.5}, Progress(40.5, "")),
        ({"summary": "only text"}, Progress(None, "only text")),
    ],
)
def test_progress(value: Any, seen: Progress | None) -> None:
    assert parse_progress(value) == seen


def test_the_end_is_expected_at_the_pace_so_far() -> None:
    start = datetime(2026, 11, 29, 9, 0, tzinfo=UTC)

    def eta(percentage: float, at: str, **more: Any) -> datetime | None:
        found = parse_progress({"percentage": percentage, "at": at, **more}, start)
        return found.eta if found else None

    assert eta(25, "2026-11-29T09:10:00+00:00") == start + timedelta(minutes=40)
    assert eta(25, "2026-11-29T09:10:00+00:00", eta="2026-11-29T09:30:00+00:00") == start + timedelta(minutes=30)
    assert eta(1, "2026-11-29T09:10:00+00:00") is None and eta(50, "no time") is None
    assert eta(50, "2026-11-29T08:59:00+00:00") is None, "its executor's clock is behind"


def test_the_deepest_value_of_an_answer_can_be_indented() -> None:
    deep: list[Any] = []
    for _ in range(2 * MAX_NESTING - 1):
        deep = [deep]
    assert not deeper_than(deep, 2 * MAX_NESTING)
    assert json.loads(indent(deep)) == deep


def test_health_documents() -> None:
    status, checks = parse_health(
        {
            "status": "ok",
            "checks": {
                "a": {"status": "ok", "value": -0.0},
                "b": {
                    "status": "ok",
                    "value": {"not_after": "2036-11-18T14:28:17+00:00", "serial": "f" * 40},
                },
                "c": 7,
            },
        }
    )
    assert status == "ok" and [check.name for check in checks] == ["a", "b"]
    assert checks[0].values == (("", "0"),)
    assert checks[1].values == (("not_after", datetime(2036, 11, 18, 14, 28, 17, tzinfo=UTC)),)
    assert parse_health("garbage") == ("unknown", [])


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": 1e999}', "{", ""])
def test_json_of_the_standard_only(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
    assert parse_json('{"a": 1e3}') == {"a": 1000.0}
