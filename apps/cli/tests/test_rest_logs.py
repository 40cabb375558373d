"""The output of a run over REST: read, followed and waited for, through the real site."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from toban_cli.rest.logs import SiteSource
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2

pytestmark = pytest.mark.parametrize("cluster", ["rest"], indirect=True)
Toban = Callable[..., tuple[int, str, str]]


def line(seq: int, text: str = "", stream: Any = logs_pb2.LOG_STREAM_STDOUT, **more: Any) -> logs_pb2.LogLine:
    return logs_pb2.LogLine(seq=seq, text=(text or f"line {seq}").encode(), stream=stream, **more)


def run_in(state: str, **more: Any) -> pb.Run:
    attempts = [pb.Attempt(token=7, attempt=1)]
    return pb.Run(id=12, job="hello", state=state, token=7, attempts=attempts, last_line="line 2", **more)


@pytest.fixture
def ended(cluster: Any) -> Any:
    """A cluster with a run that has ended, and its two lines."""
    cluster.reader.runs = [run_in("SUCCEEDED", exit_code=0)]
    cluster.logs.first = [line(1), line(2, stream=logs_pb2.LOG_STREAM_STDERR)]
    cluster.logs.at_end = True
    cluster.reader.logged.set()
    return cluster


def test_stored_lines_keep_stream_level_and_time(ended: Any, toban: Toban) -> None:
    ended.logs.first = [line(1, level="error", at_unix_nanos=1_700_000_000_123_456_000), line(2, partial=True)]
    code, out, err = toban("run", "logs", "12", "-o", "json")
    first, second = map(json.loads, out.splitlines())
    assert (code, err) == (0, "")
    assert (first["seq"], first["level"], first["at"]) == (1, "error", "2023-11-14T22:13:20.123456Z")
    assert (second["partial"], second["level"], second["attempt"]) == (True, None, 1)


def test_everything_that_can_be_asked_reaches_the_archiver(ended: Any, toban: Toban) -> None:
    argv = ("--grep", "a.b", "--regex", "--level", "warning", "--stderr", "--since", "2026-11-01", "--head", "5")
    assert toban("run", "logs", "12", "--attempt", "1", *argv)[0] == 0
    request = ended.logs.requests[-1]
    assert (request.grep, request.regex, request.level, request.head) == ("a.b", True, "warning", 5)
    assert list(request.streams) == [logs_pb2.LOG_STREAM_STDERR] and request.HasField("since") and request.token == 7


def test_a_read_that_breaks_goes_on_after_its_last_line(ended: Any, toban: Toban) -> None:
    ended.logs.failures = [TobanError(ErrorCode.UNAVAILABLE, "this archiver stops")]
    assert toban("run", "logs", "12") == (0, "line 1\n", "line 2\n")
    assert ended.logs.requests[-1].from_seq == 2


def test_the_place_of_lines_is_for_direct_calls(ended: Any, toban: Toban) -> None:
    code, out, err = toban("run", "logs", "12", "--verbose")
    assert (code, out) == (0, "line 1\n") and "where lines are stored needs `toban --direct`" in err
    assert toban("run", "get", "12")[0] == 0


@pytest.mark.parametrize("argv", [(), ("--stdout",), ("--tail", "1")])
def test_following_shows_every_line_once_until_the_run_ends(ended: Any, toban: Toban, argv: tuple[str, ...]) -> None:
    code, out, err = toban("run", "logs", "12", "--follow", *argv)
    assert code == 0 and "run 12 SUCCEEDED, exit code 0" in err
    assert out == ("" if argv[:1] == ("--tail",) else "line 1\n")
    assert err.count("line 2") == 1


def test_following_one_attempt_ends_with_it(ended: Any, toban: Toban) -> None:
    assert toban("run", "logs", "12", "--follow", "--attempt", "1") == (0, "line 1\n", "line 2\n")


@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("TIMED_OUT", 124)])
def test_waiting_ends_with_the_result(cluster: Any, toban: Toban, state: str, code: int) -> None:
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    cluster.reader.runs = [run_in("RUNNING"), run_in(state)]
    cluster.reader.logged.set()
    found, _, err = toban("run", "start", "hello", "--wait")
    assert found == code and f"run 12 {state}" in err


def test_an_interrupted_wait_says_that_the_run_goes_on(
    cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SiteSource, "await_end", interrupted)
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    code, _, err = toban("run", "start", "hello", "--wait")
    assert code == 130 and "run 12 continues" in err


def test_output_that_cannot_be_read_does_not_hold_up_a_run_that_has_ended(ended: Any, toban: Toban) -> None:
    ended.logs.failures = [TobanError(ErrorCode.RESOURCE_EXHAUSTED, "too many readers")] * 9
    ended.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    code, _, err = toban("run", "start", "hello", "--follow")
    assert code == 0 and err.count("warning: the output cannot be shown: too many readers") == 1


def test_a_run_that_is_not_there(cluster: Any, toban: Toban) -> None:
    for argv in (("run", "logs", "99"), ("run", "logs", "99", "--follow")):
        code, _, err = toban(*argv)
        assert code == 66 and "there is no run 99" in err
