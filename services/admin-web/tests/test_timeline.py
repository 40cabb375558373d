"""The page with the timeline of runs: what it asks for, and what it shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb


def asked(web: Any) -> Any:
    [request] = [one for one in web.cluster.reader.requests if isinstance(one, pb.ListRunsRequest)]
    return request


@pytest.mark.parametrize(("query", "hours"), [("", 1), ("?hours=6", 6), ("?hours=7", 1), ("?hours=24&by=job", 24)])
def test_the_last_hours(web: Any, query: str, hours: int) -> None:
    web.page("/runs/timeline" + query)
    request = asked(web)
    assert request.active_until.ToDatetime() - request.active_from.ToDatetime() == timedelta(hours=hours)
    assert request.page.limit == 200


def test_the_filters_of_the_list_and_a_span_of_its_own(web: Any) -> None:
    half_past = web.stamp(at=datetime(2026, 11, 20, 8, 30, tzinfo=UTC))
    run = web.run(7, "FAILED", started_at=half_past, finished_at=half_past)
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=[run])
    text = web.page("/runs/timeline?job=hello&state=FAILED&since=2026-11-20T08:00&until=2026-11-20T10:00&by=job")
    request = asked(web)
    assert (request.job, list(request.states)) == ("hello", ["FAILED"])
    assert request.active_from.ToDatetime(UTC) == datetime(2026, 11, 20, 8, tzinfo=UTC)
    assert "/runs?job=hello&amp;state=FAILED" in text and "2026-11-20 09:00:00 UTC" in text


def test_a_span_that_ends_before_it_begins_is_the_hour_before_its_end(web: Any) -> None:
    web.page("/runs/timeline?since=2026-11-20T10:00&until=2026-11-20T08:00")
    assert asked(web).active_from.ToDatetime(UTC) == datetime(2026, 11, 20, 7, tzinfo=UTC)


def test_bars_lead_to_runs_and_a_table_has_them_too(web: Any) -> None:
    runs = [web.run(8, "RUNNING"), web.run(7, "FAILED", finished_at=web.stamp(5), job="<b>")]
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=runs, next_cursor="7")
    # Around the times of the runs, however long ago these were made.
    since, until = (f"{web.stamp(seconds).ToDatetime():%Y-%m-%dT%H:%M}" for seconds in (3600, -120))
    text = web.page(f"/runs/timeline?since={since}&until={until}")
    assert text.count("<rect") == 2 and 'class="bad"' in text and 'class="busy"' in text
    assert 'aria-label="executor-1: 2 runs"' in text and "<b>" not in text
    assert "The newest 2 runs" in text and "These runs as a table" in text
    assert text.count('href="/runs/8"') == 2


def test_no_runs(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse()
    assert "No run that fits was running" in web.page("/runs/timeline")


def test_the_list_leads_to_the_timeline_with_its_filters(web: Any) -> None:
    assert 'href="/runs/timeline?job=hello"' in web.page("/runs?job=hello")
