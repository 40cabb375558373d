"""The page with the timeline of runs: what it asks for, and what it shows."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb


def asked(web: Any) -> Any:
    [request] = [one for one in web.cluster.reader.requests if isinstance(one, pb.ListRunsRequest)]
    return request


@pytest.mark.parametrize(("query", "hours"), [("", 1), ("?hours=6", 6), ("?hours=7", 1), ("?hours=24&by=job", 24)])
def test_the_last_hours(web: Any, query: str, hours: int) -> None:
    web.page("/runs/timeline" + query)
    request = asked(web)
    assert request.active_until.ToDatetime() - request.active_from.ToDatetime() == timedelta(hours=hours)
    assert request.page.limit == 200 and request.brief


def test_the_filters_of_the_list_and_a_span_of_its_own(web: Any) -> None:
    half_past = web.stamp(at=datetime(2026, 11, 20, 8, 30, tzinfo=UTC))
    run = web.run(7, "FAILED", started_at=half_past, finished_at=half_past)
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=[run])
    text = web.page("/runs/timeline?job=hello&state=FAILED&since=2026-11-20T08:00&until=2026-11-20T10:00&by=job")
    request = asked(web)
    assert (request.job, list(request.states)) == ("hello", ["FAILED"])
    assert request.active_from.ToDatetime(UTC) == datetime(2026, 11, 20, 8, tzinfo=UTC)
    assert "/runs?job=hello&amp;state=FAILED" in text and "2026-11-20 08:00:00 UTC" in text


def test_a_span_that_ends_before_it_begins_is_the_hour_before_its_end(web: Any) -> None:
    web.page("/runs/timeline?since=2026-11-20T10:00&until=2026-11-20T08:00")
    assert asked(web).active_from.ToDatetime(UTC) == datetime(2026, 11, 20, 7, tzinfo=UTC)


def test_bars_lead_to_runs_and_a_table_has_them_too(web: Any) -> None:
    runs = [web.run(8, "RUNNING"), web.run(7, "FAILED", finished_at=web.stamp(5), job="<b>")]
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=runs, next_cursor="")
    # Around the times of the runs, however long ago these were made.
    since, until = (f"{web.stamp(seconds).ToDatetime():%Y-%m-%dT%H:%M}" for seconds in (3600, -120))
    text = web.page(f"/runs/timeline?since={since}&until={until}")
    assert text.count('<rect class="bad"') == 1 and text.count('<rect class="busy"') == 1
    assert 'aria-label="executor-1: 2 runs"' in text and "<b>" not in text
    assert "are not counted" not in text and "These runs as a table" in text
    assert text.count('href="/runs/8"') == 2 and "data-changes" in text


def test_no_runs(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse()
    assert "No run that fits was running" in web.page("/runs/timeline")


def test_the_list_leads_to_the_timeline_with_its_filters(web: Any) -> None:
    assert 'href="/runs/timeline?job=hello"' in web.page("/runs?job=hello")


BEGIN = datetime(2026, 11, 20, 8, tzinfo=UTC)
SPAN = "since=2026-11-20T08:00&until=2026-11-20T09:00"


def few(web: Any, number: int) -> list[Any]:
    """So many runs in an hour, newest first."""
    found = []
    for one in range(number, 0, -1):
        start = BEGIN + timedelta(hours=one / (number + 1))
        ended = {"started_at": web.stamp(at=start), "finished_at": web.stamp(at=start + timedelta(seconds=20))}
        found.append(web.run(one, "SUCCEEDED", job=f"job-{one % 60}", **ended))
    return found


def many(web: Any, *, since: datetime = BEGIN, names: int = 20) -> pb.RunCounts:
    """Of an hour: 50 runs of each executor or job, one of which failed, and 36 others."""
    minutes = [
        since + timedelta(minutes=minute) for minute in range((BEGIN + timedelta(hours=1) - since).seconds // 60)
    ]
    named = [(f"executor-{one}", 0) for one in range(names)]
    return pb.RunCounts(
        since=web.stamp(at=since),
        until=web.stamp(at=BEGIN + timedelta(hours=1)),
        groups=[
            pb.RunGroup(
                name=name,
                others=others,
                runs={"SUCCEEDED": 49, "FAILED": 1},
                intervals=[pb.RunInterval(at=web.stamp(at=at), runs={"SUCCEEDED": 7, "FAILED": 1}) for at in minutes],
            )
            for name, others in [*named, ("", 36)]
        ],
    )


def test_many_runs_are_counted_by_the_coordinator_and_none_is_read(web: Any) -> None:
    web.cluster.reader.responses["CountRuns"] = many(web)
    text = web.page(f"/runs/timeline?{SPAN}&job=hello&state=FAILED")
    [asked] = web.asked(pb.CountRunsRequest)
    assert (asked.by, asked.interval_seconds, asked.filter.job) == ("executor", 60, "hello")
    assert asked.filter.active_from.ToDatetime(UTC) == BEGIN and not web.asked(pb.ListRunsRequest)
    assert 'data-every="30"' in text and "data-changes" not in text, "each change would be a read"
    assert "are not counted" not in text and "1,029 succeeded" in text and "21 failed" in text
    assert text.count('role="group"') == 22 and 'role="img"' not in text and "style=" not in text
    assert "<title>08:30–08:31 UTC · 7 succeeded, 1 failed</title>" in text
    assert "36 others (at most 8" in text
    assert re.search(r"executor=executor-1&amp;[^\"]*since=2026-11-20T08:", text)


def test_of_too_many_runs_the_page_says_since_when_it_counts_them(web: Any) -> None:
    web.cluster.reader.responses["CountRuns"] = many(web, since=BEGIN + timedelta(minutes=30))
    text = web.page(f"/runs/timeline?{SPAN}&by=job")
    assert re.search(r"Too many runs: runs before <time [^>]*>2026-11-20 08:30:00 UTC</time> are not counted", text)
    assert 'class="unread"' in text and "<title>08:29" not in text and "<title>08:30" in text


def test_when_too_many_run_at_once_nothing_is_called_empty(web: Any) -> None:
    end = web.stamp(at=BEGIN + timedelta(hours=1))
    web.cluster.reader.responses["CountRuns"] = pb.RunCounts(since=end, until=end)
    text = web.page(f"/runs/timeline?{SPAN}")
    assert "2026-11-20 09:00:00 UTC</time> are not counted" in text and "No run that fits" not in text


def test_an_older_coordinator_lists_what_is_few(web: Any) -> None:
    web.refuse("CountRuns", ErrorCode.UNIMPLEMENTED)
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=few(web, 3))
    assert 'class="good"' in web.page(f"/runs/timeline?{SPAN}")
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=few(web, 200), next_cursor="1")
    assert "No run that fits" not in (text := web.page(f"/runs/timeline?{SPAN}")) and 'class="empty"' in text


@pytest.mark.parametrize("by", ["executor", "job"])
def test_the_page_of_many_runs_is_light(web: Any, by: str) -> None:
    web.cluster.reader.responses["CountRuns"] = many(web, names=24)
    text = web.page(f"/runs/timeline?{SPAN}&by={by}")
    assert len(gzip.compress(text.encode())) < 200_000


def test_the_grid_and_the_buttons_lead_to_other_spans(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=few(web, 3))
    text = web.page(f"/runs/timeline?{SPAN}&by=job&job=hello")
    assert 'data-clock="2026-11-20T08:10:00+00:00">08:10</text>' in text
    assert "since=2026-11-20T08:10:00&amp;until=2026-11-20T08:20:00" in text
    assert ">Show only 08:10–08:20 UTC</title>" in text
    assert "since=2026-11-20T08:15:00&amp;until=2026-11-20T08:45:00" in text
    assert "by=job&amp;job=hello&amp;since=2026-11-20T07:30:00" in text
    assert 'class="now"' not in text and 'class="now"' in web.page("/runs/timeline?since=2026-11-20T08:00")


def test_an_hour_that_ended_is_not_called_the_last_one(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=few(web, 3))
    current = 'aria-current="true">Last 6 h'
    assert current in web.page("/runs/timeline?hours=6")
    assert current not in web.page("/runs/timeline?hours=6&until=2026-11-20T09:00")


def test_many_runs_that_have_not_started_are_no_lanes(web: Any) -> None:
    runs = [web.run(one, "PENDING", started_at=None, finished_at=None) for one in range(300, 0, -1)]
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=runs)
    assert "No run that fits was running" in web.page("/runs/timeline")


def test_a_span_of_centuries_is_no_error(web: Any) -> None:
    assert "Earlier" not in web.page("/runs/timeline?since=1000-01-01T00:00&until=2999-12-31T00:00")
