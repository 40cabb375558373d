"""The page with the timeline of runs: what it asks for, and what it shows."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Sequence
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
    assert request.page.limit == 500 and request.brief


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
    assert "are not shown" not in text and "These runs as a table" in text
    assert text.count('href="/runs/8"') == 2 and "data-changes" in text


def test_no_runs(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse()
    assert "No run that fits was running" in web.page("/runs/timeline")


def test_the_list_leads_to_the_timeline_with_its_filters(web: Any) -> None:
    assert 'href="/runs/timeline?job=hello"' in web.page("/runs?job=hello")


BEGIN = datetime(2026, 11, 20, 8, tzinfo=UTC)
SPAN = "since=2026-11-20T08:00&until=2026-11-20T09:00"


def many(web: Any, number: int, seconds: float = 20) -> list[Any]:
    """So many runs in an hour, newest first."""
    found = []
    for one in range(number, 0, -1):
        start = BEGIN + timedelta(hours=one / (number + 1))
        ended = {"started_at": web.stamp(at=start), "finished_at": web.stamp(at=start + timedelta(seconds=seconds))}
        state = "FAILED" if one % 50 == 0 else "SUCCEEDED"
        found.append(web.run(one, state, job=f"job-{one % 60}", executor=f"executor-{one % 20}", **ended))
    return found


def by_cursor(runs: Sequence[Any]) -> Callable[[Any], Any]:
    """As a coordinator answers: by number below the cursor, and what had not ended at active_from."""

    def answer(request: Any) -> Any:
        below = int(request.page.cursor or 1 << 60)
        since = request.active_from.ToDatetime()
        fit = [one for one in runs if one.id < below and one.finished_at.ToDatetime() >= since]
        part = fit[: request.page.limit]
        return pb.ListRunsResponse(runs=part, next_cursor=str(part[-1].id) if len(fit) > len(part) else "")

    return answer


def test_many_runs_are_counted_and_none_is_left_out(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = by_cursor(many(web, 950))
    text = web.page(f"/runs/timeline?{SPAN}")
    assert len(web.asked(pb.ListRunsRequest)) == 2
    assert 'data-every="30"' in text and "data-changes" not in text, "each change would be many reads"
    assert "are not shown" not in text and "931 succeeded" in text and "19 failed" in text
    assert text.count('role="group"') == 21 and 'role="img"' not in text and "style=" not in text
    assert re.search(r"<title>08:30–08:31 UTC · \d succeeded", text)
    assert "executor=executor-1&amp;since=2026-11-20T08:" in text


def test_beyond_the_most_runs_the_page_says_since_when_it_shows_them(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = by_cursor(many(web, 6000))
    text = web.page(f"/runs/timeline?{SPAN}&by=job")
    asked = web.asked(pb.ListRunsRequest)
    assert len(asked) == 3 and asked[-1].active_from.ToDatetime(UTC) > BEGIN
    [shown] = re.findall(
        r"More than 1,000 runs: runs before <time [^>]*>2026-11-20 (08:\d\d:\d\d) UTC</time> are not", text
    )
    assert "08:50:00" <= shown <= "08:56:00"
    assert 'class="unread"' in text and "36 others (at most " in text
    before = [one for one in re.findall(r"<title>(08:\d\d:\d\d)–[\d:]+ UTC · ", text) if one < shown]
    assert before == []


def test_when_too_many_run_at_once_nothing_is_called_empty(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = by_cursor(many(web, 6000, seconds=7200))
    text = web.page(f"/runs/timeline?{SPAN}")
    assert len(web.asked(pb.ListRunsRequest)) == 4
    assert "2026-11-20 09:00:00 UTC</time> are not shown" in text and "No run that fits" not in text


@pytest.mark.parametrize("by", ["executor", "job"])
def test_the_page_of_many_runs_is_light(web: Any, by: str) -> None:
    web.cluster.reader.responses["ListRuns"] = by_cursor(many(web, 1000, seconds=90))
    text = web.page(f"/runs/timeline?{SPAN}&by={by}")
    assert len(gzip.compress(text.encode())) < 200_000


def test_the_grid_and_the_buttons_lead_to_other_spans(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = by_cursor(many(web, 3))
    text = web.page(f"/runs/timeline?{SPAN}&by=job&job=hello")
    assert 'data-clock="2026-11-20T08:10:00+00:00">08:10</text>' in text
    assert "since=2026-11-20T08:10:00&amp;until=2026-11-20T08:20:00" in text
    assert ">Show only 08:10–08:20 UTC</title>" in text
    assert "since=2026-11-20T08:15:00&amp;until=2026-11-20T08:45:00" in text
    assert "by=job&amp;job=hello&amp;since=2026-11-20T07:30:00" in text
    assert 'class="now"' not in text and 'class="now"' in web.page("/runs/timeline?since=2026-11-20T08:00")


def test_an_hour_that_ended_is_not_called_the_last_one(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = by_cursor(many(web, 3))
    current = 'aria-current="true">Last 6 h'
    assert current in web.page("/runs/timeline?hours=6")
    assert current not in web.page("/runs/timeline?hours=6&until=2026-11-20T09:00")


def test_many_runs_that_have_not_started_are_no_lanes(web: Any) -> None:
    runs = [web.run(one, "PENDING", started_at=None, finished_at=None) for one in range(300, 0, -1)]
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=runs)
    assert "No run that fits was running" in web.page("/runs/timeline")


def test_a_span_of_centuries_is_no_error(web: Any) -> None:
    assert "Earlier" not in web.page("/runs/timeline?since=1000-01-01T00:00&until=2999-12-31T00:00")
