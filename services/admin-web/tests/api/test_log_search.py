"""GET /jobs/NAME/logs: what is asked, and how a search goes on over pages of runs, cut calls and broken streams."""

from __future__ import annotations

from typing import Any

import pytest

from toban_admin_web.views.api import log_search
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2
from toban_testing.site_messages import line

PATH = "/jobs/hello/logs"


def hits(*found: tuple[int, int], cut: str = "", **more: Any) -> Any:
    """A response with line SEQ of each RUN; its position is the last of them."""
    run, seq = found[-1]
    return logs_pb2.SearchLogResponse(
        hits=[logs_pb2.LogHit(run_id=run, token=5, line=line(seq)) for run, seq in found],
        position=logs_pb2.SearchPosition(run_id=run, token=5, seq=seq),
        cut=cut,
        **more,
    )


@pytest.fixture
def logs(api: Any) -> Any:
    """A job with runs 9 and 8, and what a log-archiver finds in them."""
    api.further.answers["GetJob"] = pb.Job(name="hello")
    api.further.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=9), pb.Run(id=8)])
    return api.web.cluster.logs


def test_a_search_in_one_part(api: Any, logs: Any) -> None:
    logs.found = [hits((9, 1)), hits((8, 2), runs=2, bytes=70, expired_attempts=1)]
    found = api.get(f"{PATH}?grep=line&regex=true&level=error&stream=stderr&limit=7&since=2026-11-01T00:00:00Z").json
    assert [(one["run_id"], one["seq"], one["token"], one["text"]) for one in found["lines"]] == [
        (9, 1, "5", "line 1"),
        (8, 2, "5", "line 2"),
    ]
    assert (found["runs"], found["bytes"], found["expired_attempts"], found["next_cursor"]) == (2, 70, 1, "")
    request = logs.requests[-1]
    assert (list(request.run_ids), request.grep, request.regex, request.level, request.limit) == (
        [9, 8],
        "line",
        True,
        "error",
        7,
    )
    assert list(request.streams) == [2] and request.since.ToJsonString() == "2026-11-01T00:00:00Z"
    asked = {name: request for name, request, _ in api.further.calls}
    assert asked["ListRuns"].active_from.ToJsonString() == "2026-10-31T23:59:00Z" and asked["ListRuns"].job == "hello"
    assert list(asked["GetReadTicket"].run_ids) == [9, 8]


def test_a_search_goes_on_where_it_was_cut(api: Any, logs: Any) -> None:
    api.further.answers["ListRuns"].next_cursor = "8"
    logs.found = [hits((9, 1), cut="lines")]
    first = api.get(PATH).json
    assert first["next_cursor"] == "9.5.1~"
    logs.found = [logs_pb2.SearchLogResponse(position=logs_pb2.SearchPosition(run_id=8))]
    second = api.get(f"{PATH}?cursor={first['next_cursor']}").json
    after = logs.requests[-1].after
    assert (after.run_id, after.token, after.seq) == (9, 5, 1)
    assert (second["lines"], second["next_cursor"]) == ([], "0.0.0~8"), "this page of runs is done"
    api.further.answers["ListRuns"] = pb.ListRunsResponse()
    last = api.get(f"{PATH}?cursor={second['next_cursor']}").json
    assert last["next_cursor"] == "" and api.further.last.page.cursor == "8"


class BusyJob:
    """A job whose list of runs grows at its head; cursors are those of PostgreSQL's ids."""

    def __init__(self, newest: int) -> None:
        self.ids = list(range(newest, 0, -1))
        self.pages = 0

    def start(self, count: int) -> None:
        self.ids = [*range(self.ids[0] + count, self.ids[0], -1), *self.ids]

    def list(self, request: Any) -> Any:
        self.pages += 1
        limit, below = request.page.limit, int(request.page.cursor or 1 << 62)
        left = [one for one in self.ids if one < below]
        further = str(left[limit - 1]) if len(left) > limit else ""
        return pb.ListRunsResponse(runs=[pb.Run(id=one) for one in left[:limit]], next_cursor=further)


def test_a_search_of_a_very_busy_job_does_not_begin_again(api: Any, logs: Any) -> None:
    """More runs begin between two requests than a page has."""
    job = BusyJob(250)
    api.further.answers["ListRuns"] = job.list
    searched: list[int] = []
    cursor = ""
    while True:
        ids = [one for one in job.ids if not searched or one < searched[-1]]
        logs.found = [hits((ids[0], 1), cut="bytes")]
        with api.get(f"{PATH}?cursor={cursor}") as response:
            part = response.json
        searched += [one["run_id"] for one in part["lines"]]
        cursor = part["next_cursor"]
        assert logs.requests[-1].run_ids[0] >= searched[-1], "it goes on at its place"
        if len(searched) == 5:
            break
        job.start(150)
    assert searched == [250, 249, 248, 247, 246]
    assert logs.requests[-1].after.run_id == 247 and logs.requests[-1].run_ids[0] == 247


def test_the_place_is_kept_while_it_is_looked_for(api: Any, logs: Any) -> None:
    job = BusyJob(5)
    api.further.answers["ListRuns"] = job.list
    logs.found = [hits((5, 7), cut="lines")]
    cursor = api.get(PATH).json["next_cursor"]
    job.start(100 * log_search.NEWER_PAGES + 50)
    asked = len(logs.requests)
    part = api.get(f"{PATH}?cursor={cursor}").json
    assert part["lines"] == [] and part["next_cursor"].startswith("5.5.7~") and len(logs.requests) == asked
    assert job.pages == 1 + log_search.NEWER_PAGES, "a request reads a bounded number of pages"
    logs.found = [hits((4, 1))]
    last = api.get(f"{PATH}?cursor={part['next_cursor']}").json
    assert (logs.requests[-1].after.run_id, logs.requests[-1].after.seq) == (5, 7)
    assert list(logs.requests[-1].run_ids) == [5, 4, 3, 2, 1] and last["next_cursor"] == ""


def test_a_search_whose_time_is_used_up_by_pages_goes_on_behind_them(api: Any, logs: Any) -> None:
    job = BusyJob(5)
    api.further.answers["ListRuns"] = job.list
    logs.found = [hits((5, 7), cut="lines")]
    cursor = api.get(PATH).json["next_cursor"]
    job.start(500)

    def late(request: Any) -> Any:
        if job.pages == 3:
            raise TobanError(ErrorCode.DEADLINE_EXCEEDED, "too late")
        return job.list(request)

    api.further.answers["ListRuns"] = late
    part = api.get(f"{PATH}?cursor={cursor}").json
    assert part["lines"] == [] and part["next_cursor"] == "5.5.7~306", "two pages of a hundred runs are behind it"
    job.pages = 3
    assert api.get(f"{PATH}?cursor={cursor}").status_code == 503


def test_a_place_in_a_run_that_was_deleted(api: Any, logs: Any) -> None:
    logs.found = [hits((8, 1))]
    assert api.get(f"{PATH}?cursor=9.5.1~").json["next_cursor"] == ""
    api.further.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=12), pb.Run(id=8)])
    api.get(f"{PATH}?cursor=9.5.1~")
    assert list(logs.requests[-1].run_ids) == [8] and not logs.requests[-1].HasField("after")


def test_a_stream_that_breaks_after_some_lines_is_continued(api: Any, logs: Any) -> None:
    logs.found = [hits((9, 3)), TobanError(ErrorCode.UNAVAILABLE, "gone")]
    found = api.get(PATH).json
    assert len(found["lines"]) == 1 and found["next_cursor"] == "9.5.3~"
    logs.found = [TobanError(ErrorCode.INVALID_ARGUMENT, "grep: no expression")]
    assert api.get(f"{PATH}?grep=(&regex=true").status_code == 400


def test_what_is_refused(api: Any, logs: Any) -> None:
    for cursor in ("x", "1.2.3", "1.99999999999999999999.3~", f"1.{1 << 63}.3~"):
        assert api.get(f"{PATH}?cursor={cursor}").status_code == 400
    api.refuse("GetJob", TobanError(ErrorCode.JOB_NOT_FOUND, "there is no job"))
    assert api.get(PATH).status_code == 404
    api.refuse("GetJob", TobanError(ErrorCode.PERMISSION_DENIED, "no", detail={"user": "u-viewer"}))
    assert api.get(PATH, role="viewer").status_code == 403
    assert logs.requests == [] and api.web.worker.context.stream_slots.usage()[0] == 0
