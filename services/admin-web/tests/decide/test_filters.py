"""The query strings of the pages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide.filters import parse_filter, wants_part
from toban_domain.run import RunState

NAMES = [
    "job",
    "schedule",
    "executor",
    "state",
    "origin",
    "scope",
    "label",
    "since",
    "until",
    "ahead",
    "limit",
    "cursor",
]


@given(st.dictionaries(st.sampled_from(NAMES), st.text()))
def test_any_query_gives_filters_that_can_be_written_again(query: dict[str, str]) -> None:
    filters = parse_filter(query)
    assert filters.limit in (25, 50, 100, 200)
    assert set(filters.fields()["states"]) <= {state.value for state in RunState}
    assert parse_filter(filters.url_query(cursor=filters.cursor)) == filters


@pytest.mark.parametrize(("query", "wanted"), [({}, False), ({"part": "1"}, True), ({"part": "0"}, False)])
def test_requests_for_a_part(query: dict[str, str], wanted: bool) -> None:
    assert wants_part(query) is wanted


def test_a_url_as_a_query() -> None:
    url = {
        "executor": "host-a",
        "origin": "event",
        "scope": "account:17",
        "label": "team=a=b",
        "since": "2031-03-01T09:30",
    }
    fields = parse_filter(url).fields()
    named = [fields[name] for name in ("executor", "origin", "scope", "scope_id", "labels", "active_from")]
    since = datetime(2031, 3, 1, 9, 30, tzinfo=UTC)
    assert named == ["host-a", "event", "account", "17", {"team": "a=b"}, since]
    assert parse_filter(url).active() == list(url.items())


@pytest.mark.parametrize(
    "wrong",
    [
        {"origin": "cron"},
        {"scope": "tenant:1"},
        {"label": "team"},
        {"since": "yesterday"},
        {"until": "2031-02-30T00:00"},
    ],
)
def test_a_wrong_value_counts_as_absent(wrong: dict[str, str]) -> None:
    assert parse_filter(wrong).active() == []
