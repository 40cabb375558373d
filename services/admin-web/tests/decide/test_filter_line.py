"""The filters of the list of runs as one line."""

from __future__ import annotations

import pytest

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.filter_line import KEYS, line_of, parse_line, suggested_parts
from toban_admin_web.decide.filters import RunFilter, parse_filter


def test_a_line_is_a_query_and_back() -> None:
    line = 'job:nightly* state:failed origin:slot scope:account:17 label:"team=big data" since:2026-11-01T00:00'
    query, wrong = parse_line(line)
    assert wrong == [] and query == {
        "job": "nightly*",
        "state": "FAILED",
        "origin": "slot",
        "scope": "account:17",
        "label": "team=big data",
        "since": "2026-11-01T00:00",
    }
    filters = parse_filter(query)
    assert parse_line(line_of(filters)) == (query, [])
    assert line_of(RunFilter(ids=(7,), job="a")) == "job:a" and line_of(RunFilter()) == ""
    assert parse_line("  ") == ({}, []) and parse_line("STATE:Live")[0] == {"state": "live"}


@pytest.mark.parametrize(
    ("line", "kind", "part"),
    [
        ("340", "no_key", "340"),
        ("job:", "no_key", "job:"),
        ("foo:bar", "unknown_key", "foo:bar"),
        ("cursor:5", "unknown_key", "cursor:5"),
        ("job:a job:b", "twice", "job:b"),
        ("state:broken", "wrong_value", "state:BROKEN"),
        ("label:team", "wrong_value", "label:team"),
        ("since:yesterday", "wrong_value", "since:yesterday"),
        ("job:*a", "wrong_value", "job:*a"),
    ],
)
def test_what_cannot_be_used_is_named(line: str, kind: str, part: str) -> None:
    query, [wrong] = parse_line(f"executor:e1 {line}")
    assert (wrong.kind, wrong.part) == (kind, part) and query["executor"] == "e1"


def test_each_key_is_a_filter() -> None:
    assert set(KEYS) == {name for name, _ in RunFilter()._narrowing()}


def test_suggested_parts_are_parts_of_a_line() -> None:
    run = Run.model_construct(job="hello", schedule="", executor="e1")
    parts = suggested_parts([run, run])
    assert parts[0] == "job:hello" and {"state:failed", "state:live", "executor:e1", "origin:slot"} <= set(parts)
    assert [one for one in parts if one.endswith(":")] == ["schedule:", "scope:", "label:", "since:", "until:"]
    assert len(parts) == len(set(parts))
    assert [one for one in parts if parse_line(one)[1] and not one.endswith(":")] == []
