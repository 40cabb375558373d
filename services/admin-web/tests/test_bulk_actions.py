"""Cancel and rerun of all runs that match: the count, the parts with their progress, what is left as it was."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_admin_web.decide.bulk import Progress, parse_progress
from toban_admin_web.ports.people import SignedIn
from toban_admin_web.views.runs import bulk_actions
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

NOW = datetime(2026, 12, 1, tzinfo=UTC)
QUERY = "job=hello&state=FAILED&label=team%3Dops&since=2026-11-01T00:00"


class Parts:
    """A coordinator that changes ten runs a part."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.requests: list[Any] = []
        self.error_at = -1

    def __call__(self, request: Any) -> Any:
        self.requests.append(request)
        begin = int(request.filter.page.cursor or 0)
        if begin == self.error_at and not request.dry_run:
            raise TobanError(ErrorCode.UNAVAILABLE, "no leader <now>")
        end = min(begin + 10, self.runs)
        skipped = []
        if begin == 0 and not request.dry_run and self.runs:
            skipped = [pb.SkippedRuns(code="RESOURCE_INVALID_STATE", message="run 3 has <ended>", runs=2)]
        return pb.ChangeRunsResponse(
            matched=end - begin,
            changed=0 if request.dry_run else end - begin - sum(one.runs for one in skipped),
            skipped=skipped,
            next_cursor=str(end) if end < self.runs else "",
        )

    @property
    def changing(self) -> list[Any]:
        """The requests that were no dry runs."""
        return [one for one in self.requests if not one.dry_run]


@pytest.fixture
def parts(web: Any) -> Parts:
    made = Parts(25)
    web.cluster.reader.responses |= {"CancelRuns": made, "RerunRuns": made}
    return made


def test_the_count_is_shown_before_anything_is_changed(web: Any, parts: Parts) -> None:
    text = web.page(f"/runs/cancel?{QUERY}")
    assert "Matching runs: 25" in text and "Cancel 25 runs" in text and "team=ops" in text
    assert parts.changing == [] and len(parts.requests) == 3
    request = parts.requests[0].filter
    assert (request.job, list(request.states), dict(request.labels)) == ("hello", ["FAILED"], {"team": "ops"})
    assert request.active_from.seconds == 1793491200 and request.HasField("active_until")


def test_a_long_count_says_that_there_are_more(web: Any, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_actions, "PART_SECONDS", -1)
    assert "Matching runs: more than 10" in web.page("/runs/cancel")


def test_nothing_matches(web: Any, parts: Parts) -> None:
    parts.runs = 0
    text = web.page("/runs/rerun?job=none")
    assert "No run matches" in text and "<textarea" not in text


@pytest.mark.parametrize(("verb", "operation"), [("cancel", False), ("rerun", True)])
def test_all_parts_in_one_request_when_there_is_time(web: Any, parts: Parts, verb: str, operation: bool) -> None:
    response = web.post(f"/runs/{verb}?{QUERY}", reason="wrong input")
    text = response.get_data(as_text=True)
    assert response.status_code == 200 and "Done." in text and "23 of 25 runs " in text
    assert "Runs left as they are: 2" in text and "run 3 has &lt;ended&gt;" in text
    assert [one.filter.page.cursor for one in parts.changing] == ["", "10", "20"]
    assert {one.reason for one in parts.changing} == {"wrong input"}
    assert len({one.filter.active_until.ToNanoseconds() for one in parts.requests[-6:]}) <= 2
    if operation:
        assert len({one.operation for one in parts.changing}) == 1 and parts.changing[0].operation.startswith("site-")


def hidden(text: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', text))


def test_it_goes_on_part_after_part_with_the_progress(web: Any, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    first = hidden(web.page("/runs/rerun?job=hello"))
    monkeypatch.setattr(bulk_actions, "PART_SECONDS", -1)
    local = {"Origin": "http://localhost"}
    form, pages = {**first, "reason": "again", "latest": "1"}, []
    for _ in range(3):
        pages.append(web.client.post("/runs/rerun?job=hello", data=form, headers=local).get_data(as_text=True))
        form = hidden(pages[-1])
    assert "data-continue" in pages[0] and "8 of 25 runs " in pages[0] and "18 of 25 runs " in pages[1]
    assert "Done." in pages[2] and "23 of 25 runs " in pages[2] and "data-continue" not in pages[2]
    assert [one.filter.page.cursor for one in parts.changing] == ["", "10", "20"]
    assert len({(one.operation, one.reason, one.latest_definition) for one in parts.changing}) == 1
    assert {one.filter.active_until.ToJsonString() for one in parts.changing} == {
        parts.requests[0].filter.active_until.ToJsonString()
    }


def test_a_part_that_fails_is_repeated_from_where_it_stopped(web: Any, parts: Parts) -> None:
    parts.error_at = 10
    response = web.post("/runs/cancel?job=hello", reason="x")
    text = response.get_data(as_text=True)
    assert response.status_code == 503 and "no leader &lt;now&gt;" in text and "Stopped." in text
    assert "8 of 25 runs " in text and hidden(text)["cursor"] == "10" and "data-continue" not in text
    parts.error_at = -1
    again = web.client.post("/runs/cancel?job=hello", data=hidden(text), headers={"Origin": "http://localhost"})
    assert "23 of 25 runs " in again.get_data(as_text=True)


def test_without_a_reason_nothing_is_changed(web: Any, parts: Parts) -> None:
    response = web.post("/runs/cancel", reason="")
    assert response.status_code == 400 and parts.changing == []
    assert "Cancel 25 runs" in response.get_data(as_text=True)


def test_the_list_offers_it_with_its_filters_and_only_to_those_who_may(
    web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = web.page("/runs")
    assert "/runs/cancel?" not in plain and "/runs/rerun?" not in plain, "all runs are no filter"
    text = web.page("/runs?job=hello&cursor=5")
    assert 'href="/runs/cancel?job=hello"' in text and 'href="/runs/rerun?job=hello"' in text
    people = web.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="vic", role="viewer"))
    assert "/runs/cancel" not in web.page("/runs")
    for path in ("/runs/cancel", "/runs/rerun"):
        assert web.get(path).status_code == 403


def test_what_a_form_says_is_read_with_care() -> None:
    odd = {"total": "-1", "matched": "x", "changed": "9" * 50, "left": "¹", "cursor": "1;2", "until": "2026-12-01"}
    assert parse_progress(odd, now=NOW, key="k") == Progress(until=NOW, key="k")
    later = {"until": (NOW + timedelta(days=1)).isoformat(), "total": "7", "cursor": "12"}
    assert parse_progress(later, now=NOW, key="k") == Progress(until=NOW, key="k", total=7, cursor="12")
    kept = Progress(until=NOW - timedelta(1), key="k", total=7, complete=True, matched=3, changed=2, left=1, cursor="9")
    assert parse_progress(kept.hidden(), now=NOW, key="k") == kept


def test_marked_runs_are_the_only_filter(web: Any, parts: Parts) -> None:
    text = web.page("/runs?state=FAILED")
    assert '<input type="checkbox" name="run" value="7">' in text and 'formaction="/runs/cancel"' in text
    text = web.page("/runs/rerun?marked=1&run=7&run=5&run=7&run=x&job=other")
    assert list(parts.requests[0].filter.run_ids) == [7, 5] and parts.requests[0].filter.job == ""
    assert parts.requests[0].filter.include_ahead and "Marked runs: 7, 5" in text
    assert 'action="/runs/rerun?ids=7,5"' in text or 'action="/runs/rerun?ids=7%2C5"' in text
    assert "No state is chosen" not in text
    web.post("/runs/rerun?ids=7,5&state=FAILED", reason="again")
    assert {tuple(one.filter.run_ids) for one in parts.changing} == {(7, 5)}
    assert {tuple(one.filter.states) for one in parts.changing} == {()}
    assert "<h1>Rerun the marked</h1>" in text and 'href="/runs?ids=7' in text


@pytest.mark.parametrize("verb", ["cancel", "rerun"])
def test_without_a_mark_nothing_is_counted_or_changed(web: Any, parts: Parts, verb: str) -> None:
    for query in ("marked=1", "marked=1&run=", "marked=1&run=0&state=FAILED"):
        response = web.get(f"/runs/{verb}?{query}")
        text = response.get_data(as_text=True)
        assert response.status_code == 400 and "No run is marked." in text and "<textarea" not in text
    data = hidden(web.page(f"/runs/{verb}?job=hello")) | {"reason": "x"}
    counted = len(parts.requests)
    local = {"Origin": "http://localhost"}
    assert web.client.post(f"/runs/{verb}?marked=1", data=data, headers=local).status_code == 400
    assert len(parts.requests) == counted and parts.changing == []
