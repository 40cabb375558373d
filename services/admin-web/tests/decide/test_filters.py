"""The query strings of the pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide.filters import parse_filter, wants_part
from toban_domain.run import RunState


@given(st.dictionaries(st.sampled_from(["job", "schedule", "state", "ahead", "limit", "cursor"]), st.text()))
def test_any_query_gives_filters_that_can_be_written_again(query: dict[str, str]) -> None:
    filters = parse_filter(query)
    assert filters.limit in (25, 50, 100, 200)
    assert set(filters.query().states) <= {state.value for state in RunState}
    assert parse_filter(filters.url_query(cursor=filters.cursor)) == filters


@pytest.mark.parametrize(("query", "wanted"), [({}, False), ({"part": "1"}, True), ({"part": "0"}, False)])
def test_requests_for_a_part(query: dict[str, str], wanted: bool) -> None:
    assert wants_part(query) is wanted
