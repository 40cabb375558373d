"""`toban job logs`: which runs are searched, how a search continues, what is printed on stderr."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2
from toban_proto.v1.common_pb2 import Page

NANOS = int(datetime(2031, 3, 1, 12, tzinfo=UTC).timestamp()) * 10**9


def hit(run_id: int, seq: int, text: bytes, *, token: int = 7, stream: Any = 1) -> logs_pb2.LogHit:
    line = logs_pb2.LogLine(seq=seq, at_unix_nanos=NANOS, text=text, stream=stream)
    return logs_pb2.LogHit(run_id=run_id, token=token, line=line)


def answer(*hits: logs_pb2.LogHit, at: tuple[int, int, int] = (0, 0, 0), **given: Any) -> logs_pb2.SearchLogResponse:
    position = logs_pb2.SearchPosition(run_id=at[0], token=at[1], seq=at[2])
    return logs_pb2.SearchLogResponse(hits=hits, position=position, **given)


@pytest.fixture(autouse=True)
def runs(cluster: Any) -> None:
    """Two pages of runs, the newest first."""

    def page(request: pb.ListRunsRequest) -> pb.ListRunsResponse:
        ids, cursor = ((9, 8, 7), "7") if not request.page.cursor else ((5, 3), "")
        return pb.ListRunsResponse(runs=[pb.Run(id=run_id, token=7, attempt=2) for run_id in ids], next_cursor=cursor)

    cluster.reader.answers["ListRuns"] = page
    cluster.reader.runs = [
        pb.Run(id=5, token=7, attempts=[pb.Attempt(token=3, attempt=1), pb.Attempt(token=7, attempt=2)])
    ]


def test_every_run_of_the_time_is_searched(cluster: Any, toban: Any) -> None:
    cluster.logs.found = [
        [answer(hit(9, 1, b"one"), hit(8, 4, b"two", stream=2), at=(7, 0, 0), runs=3)],
        [answer(hit(3, 2, b"\xffthree"), at=(3, 0, 0), runs=2)],
    ]
    argv = ["--grep", "a.b", "--regex", "--stderr", "--level", "error"]
    code, out, err = toban(
        "job", "logs", "hello", "--since", "2031-03-01T10:00:00Z", "--until", "2031-03-01T13:00:00Z", *argv
    )
    at = "2031-03-01T12:00:00.000+00:00"
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"9 {at} stdout one", f"8 {at} stderr two", f"3 {at} stdout \ufffdthree"]
    first, second = cluster.reader.requests
    assert (first.job, first.page.limit, second.page) == ("hello", 500, Page(limit=500, cursor="7"))
    # Clocks differ: a run that ended just before may have written just after.
    assert first.active_from.ToDatetime(UTC) == datetime(2031, 3, 1, 9, 59, tzinfo=UTC)
    assert first.active_until.ToDatetime(UTC) == datetime(2031, 3, 1, 13, 1, tzinfo=UTC)
    one, two = cluster.logs.requests
    assert (list(one.run_ids), list(two.run_ids)) == ([9, 8, 7], [5, 3])
    assert (one.grep, one.regex, one.level, list(one.streams), one.limit, two.limit) == (
        "a.b",
        True,
        "error",
        [2],
        1000,
        998,
    )
    assert one.since.ToDatetime(UTC) == datetime(2031, 3, 1, 10, tzinfo=UTC)


def test_a_search_that_a_log_archiver_cut_goes_on_by_itself(cluster: Any, toban: Any) -> None:
    broken = TobanError(ErrorCode.UNAVAILABLE, "this log-archiver stops")
    cluster.logs.found = [
        [answer(hit(9, 1, b"one"), at=(9, 7, 20), cut="bytes", runs=0)],
        [answer(hit(9, 30, b"two"), at=(9, 7, 30)), broken],
        [answer(at=(7, 0, 0), runs=3)],
        [answer(at=(3, 0, 0), runs=2)],
    ]
    assert toban("job", "logs", "hello")[1].count("\n") == 2
    positions = [(one.after.run_id, one.after.token, one.after.seq) for one in cluster.logs.requests]
    assert positions == [(0, 0, 0), (9, 7, 20), (9, 7, 30), (0, 0, 0)]


def test_the_limit_says_how_to_go_on(cluster: Any, toban: Any) -> None:
    cluster.logs.found = [[answer(hit(9, 1, b"one"), hit(8, 4, b"two"), at=(8, 7, 4), cut="lines", runs=1)]]
    code, out, err = toban("job", "logs", "hello", "--limit", "2")
    assert (code, out.count("\n"), err) == (0, 2, "stopped after 2 lines; continue with --after 8.7.4\n")
    cluster.logs.found = [
        [answer(at=(7, 0, 0), runs=2)],
        [answer(hit(5, 1, b"x"), at=(3, 0, 0), runs=2, expired_attempts=1)],
    ]
    code, out, err = toban("job", "logs", "hello", "--after", "8.7.4")
    assert (code, err) == (0, "the output of 1 attempt expired: older than log_retention_days_archive\n")
    again = cluster.logs.requests[1]
    assert (list(again.run_ids), again.after.run_id, again.after.token, again.after.seq) == ([8, 7], 8, 7, 4)


def test_a_stream_that_breaks_at_the_limit_asks_for_nothing_more(cluster: Any, toban: Any) -> None:
    broken = TobanError(ErrorCode.UNAVAILABLE, "this log-archiver stops")
    cluster.logs.found = [[answer(hit(9, 1, b"one"), hit(8, 4, b"two"), at=(8, 7, 4), runs=1), broken]]
    code, out, err = toban("job", "logs", "hello", "--limit", "2")
    assert (code, out.count("\n"), err) == (0, 2, "stopped after 2 lines; continue with --after 8.7.4\n")
    assert len(cluster.logs.requests) == 1


def test_what_expired_is_added_up_over_the_calls(cluster: Any, toban: Any) -> None:
    cluster.logs.found = [
        [answer(at=(9, 7, 20), runs=1, expired_attempts=1), answer(at=(9, 7, 30), cut="bytes", expired_attempts=2)],
        [answer(at=(7, 0, 0), runs=3, expired_attempts=1)],
        [answer(hit(5, 1, b"x"), at=(3, 0, 0), runs=2, expired_attempts=4)],
    ]
    assert toban("job", "logs", "hello")[2].startswith("the output of 7 attempts expired")


def test_json_names_run_and_attempt(cluster: Any, toban: Any) -> None:
    cluster.logs.found = [[], [answer(hit(5, 1, b"x", token=3), hit(5, 2, b"y"), at=(3, 0, 0), runs=2)]]
    cluster.logs.found[0] = [answer(at=(7, 0, 0), runs=3)]
    lines = [json.loads(line) for line in toban("job", "logs", "hello", "-o", "json")[1].splitlines()]
    assert [(one["run"], one["attempt"], one["seq"], one["text"]) for one in lines] == [(5, 1, 1, "x"), (5, 2, 2, "y")]


def test_nothing_found_and_no_such_job(cluster: Any, toban: Any) -> None:
    cluster.logs.found = [[answer(at=(7, 0, 0), runs=3, bytes=2048)], [answer(at=(3, 0, 0), runs=2)]]
    assert toban("job", "logs", "hello", "--grep", "x") == (
        0,
        "",
        "nothing found in 5 runs of hello (2.0 KiB searched)\n",
    )
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse()
    cluster.reader.answers["GetJob"] = TobanError(ErrorCode.JOB_NOT_FOUND, "there is no job helo")
    assert toban("job", "logs", "helo")[0] == 66


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--after", "x"], 65, "is not a position"),
        (["--after", "9999999999999999999"], 65, "is not a position"),
        (["--after", "8.7.9223372036854775808"], 65, "is not a position"),
        (["--regex"], 64, "is for --grep"),
        (["--since", "soon"], 65, "is not a time"),
        (["--limit", "0"], 64, "0"),
    ],
)
def test_mistakes_are_one_line(cluster: Any, toban: Any, argv: list[str], code: int, words: str) -> None:
    found, out, err = toban("job", "logs", "hello", *argv)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert words in err
