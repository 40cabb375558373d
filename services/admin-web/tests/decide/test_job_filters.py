"""The filters of the list of jobs in a URL."""

from __future__ import annotations

import pytest

from toban_admin_web.decide.job_filters import JobFilter, parse_job_filter


def test_filters_of_a_url_can_be_written_again() -> None:
    query = {"name": "load", "label": "team=data", "failing": "1", "disabled": "1", "sort": "next_run"}
    filters = parse_job_filter(query | {"cursor": "x"})
    assert filters.url_query() == query and filters.cursor == "x" and filters.narrows
    assert filters.url_query(failing="", sort="") == {"name": "load", "label": "team=data", "disabled": "1"}
    fields = filters.fields(50)
    assert (fields["label"], fields["history"], fields["page"]) == ("team=data", 20, {"limit": 50, "cursor": "x"})


def test_what_is_unknown_counts_as_absent() -> None:
    assert parse_job_filter({"sort": "x", "failing": "yes", "disabled": "0"}) == JobFilter()
    assert parse_job_filter({"sort": "name"}).url_query() == {}


@pytest.mark.parametrize(("label", "wrong"), [("", False), ("a=b", False), ("a=", False), ("a", True), ("=b", True)])
def test_a_label_has_a_key(label: str, wrong: bool) -> None:
    filters = JobFilter(label=label)
    assert filters.wrong_label is wrong and filters.fields(1)["label"] == ("" if wrong else label)
