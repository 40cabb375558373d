"""`toban run logs`: what is requested, how lines look, what is printed on stderr."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_cli.log_printer import LinePrinter, Style
from toban_cli.sanitize import clean_bytes
from toban_cli.times import read_time_bound
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2
from toban_proto.v1.logs_pb2 import LOG_STREAM_STDERR, LOG_STREAM_STDOUT, LOG_STREAM_SYSTEM

NOON = datetime(2031, 3, 1, 12, tzinfo=UTC)
NANOS = int(NOON.timestamp()) * 10**9


def line(seq: int, text: bytes, stream: int = LOG_STREAM_STDOUT, **given: Any) -> logs_pb2.LogLine:
    return logs_pb2.LogLine(seq=seq, at_unix_nanos=NANOS, text=text, stream=stream, **given)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def a_run(cluster: Any) -> None:
    attempts = [pb.Attempt(token=3, attempt=1), pb.Attempt(token=5, attempt=1), pb.Attempt(token=7, attempt=2)]
    cluster.reader.runs = [pb.Run(id=12, state="SUCCEEDED", token=7, attempts=attempts)]


def test_everything_that_can_be_asked_reaches_the_archiver(cluster: Any, toban: Any) -> None:
    cluster.logs.first = [line(1, b"one")]
    argv = ["--tail", "5", "--since", "2031-03-01T10:00:00Z", "--until", "2031-03-01T13:00:00+01:00", "--stderr"]
    argv += ["--grep", "a.b", "--regex", "--level", "warning", "--attempt", "1"]
    assert toban("run", "logs", "12", *argv)[0] == 0
    (request,) = cluster.logs.requests
    assert (request.run_id, request.tail, request.grep, request.regex, request.level) == (12, 5, "a.b", True, "warning")
    assert (list(request.tokens), list(request.streams)) == ([3, 5], [LOG_STREAM_STDERR])
    assert request.since.ToDatetime(tzinfo=UTC) == NOON - timedelta(hours=2)
    assert request.until.ToDatetime(tzinfo=UTC) == NOON


def test_raw_is_the_output_of_the_job_alone(cluster: Any, toban: Any) -> None:
    cluster.logs.first = [line(1, b"\x1b[31mred\r")]
    assert toban("run", "logs", "12", "--raw") == (0, "\x1b[31mred\r\n", "")
    assert list(cluster.logs.requests[0].streams) == [LOG_STREAM_STDOUT, LOG_STREAM_STDERR]


def test_json_has_one_object_a_line(cluster: Any, toban: Any) -> None:
    cluster.logs.first = [
        line(1, b'{"level": "error"}', level="error"),
        line(2, b"\xff", LOG_STREAM_STDERR, partial=True),
        line(3, b"cut", LOG_STREAM_SYSTEM),
    ]
    code, out, err = toban("run", "logs", "12", "-o", "json")
    assert (code, err) == (0, "")
    one, two, three = map(json.loads, out.splitlines())
    assert one == {
        "token": "7",
        "attempt": 2,
        "seq": 1,
        "at": "2031-03-01T12:00:00.000000Z",
        "stream": "stdout",
        "level": "error",
        "text": '{"level": "error"}',
        "partial": False,
    }
    assert (two["text"], two["base64"], two["partial"], two["level"]) == ("\ufffd", "/w==", True, None)
    assert three["stream"] == "system"


def test_times_stand_before_lines_and_not_within_them(cluster: Any, toban: Any) -> None:
    cluster.logs.first = [line(1, b"half ", partial=True), line(2, b"whole"), line(3, b"next")]
    at = NOON.astimezone().isoformat(timespec="milliseconds")
    assert toban("run", "logs", "12", "--timestamps") == (0, f"{at} half whole\n{at} next\n", "")


@pytest.mark.seed(117)
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("db", "from the database"),
        ("s3://b/k", "from the archive (s3://b/k)"),
        ("db, s3://b/k", "from both, the database and the archive (s3://b/k)"),
        ("s3://b/k, s3://b/l", "from the archive (2 objects)"),
    ],
)
def test_it_says_from_where_it_reads(cluster: Any, toban: Any, place: str, words: str) -> None:
    cluster.logs.first = [line(1, b"one")]
    cluster.logs.place = place
    assert toban("run", "logs", "12", "--verbose") == (0, "one\n", f"run 12, {words}\n")
    assert toban("run", "logs", "12") == (0, "one\n", "")


def test_a_run_without_output_is_said_so(cluster: Any, toban: Any) -> None:
    cluster.logs.stored = False
    assert toban("run", "logs", "12") == (0, "", "run 12 has written nothing\n")
    assert toban("run", "logs", "12", "--grep", "x") == (0, "", "run 12 has written nothing of this kind\n")


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (pb.Run(id=12, state="SKIPPED", reason="overlap"), "never started, so it has no output: SKIPPED, overlap"),
        (
            pb.Run(id=12, state="CANCELED", cancel_reason="typo", reason="canceled"),
            "never started, so it has no output: CANCELED, typo",
        ),
        (pb.Run(id=12, state="PENDING"), "has not started, so it has no output yet: PENDING, it waits for an executor"),
        (pb.Run(id=12, state="PENDING", scheduled_for={"seconds": 4_000_000_000}), "PENDING, due 2096-10-02 07:06:40"),
        (pb.Run(id=12, state="RUNNING", token=7), "has written nothing yet"),
    ],
)
def test_a_run_that_did_not_start_says_why(cluster: Any, toban: Any, run: pb.Run, words: str) -> None:
    cluster.reader.runs = [run]
    code, out, err = toban("run", "logs", "12")
    assert (code, out) == (0, "")
    assert words in err
    assert err.count("\n") == 1


def test_lines_that_have_expired_are_said_so(cluster: Any, toban: Any) -> None:
    cluster.logs.expired_lines = 3
    said = "3 lines of attempt 2 expired: older than log_retention_days_archive\n"
    assert toban("run", "logs", "12") == (0, "", said)
    cluster.logs.first = [line(1, b"one")]
    assert toban("run", "logs", "12") == (0, "one\n", said)
    cluster.logs.expired_late = 5
    assert toban("run", "logs", "12") == (0, "one\n", said + said.replace("3", "5", 1))


@pytest.mark.seed(54, 114)
def test_a_run_says_where_its_output_is(cluster: Any, toban: Any) -> None:
    cluster.logs.first = [line(1, b"one")]
    cluster.logs.place = "db, s3://b/k"
    cluster.reader.runs[0].log_ref = "toban-log:12"
    log = json.loads(toban("run", "get", "12", "-o", "json")[1])
    assert (log["log_ref"], log["log"]["lines"], log["log"]["places"]) == ("toban-log:12", 1, ["db", "s3://b/k"])
    assert "toban-log:12: 1 line, 0 B, in the database, in s3://b/k" in toban("run", "get", "12")[1]


def test_a_broken_stream_is_gone_on_with(cluster: Any, toban: Any) -> None:
    cluster.logs.first = [line(1, b"one"), line(2, b"two")]
    cluster.logs.failures = [TobanError(ErrorCode.UNAVAILABLE, "this log-archiver stops")]
    assert toban("run", "logs", "12", "--head", "9") == (0, "one\ntwo\n", "")
    again = cluster.logs.requests[1]
    assert (again.after.token, again.after.seq, again.head) == (7, 1, 8)


def test_a_stream_that_breaks_without_a_line_is_an_error(cluster: Any, toban: Any) -> None:
    cluster.logs.first = [line(1, b"one")]
    cluster.logs.failures = [TobanError(ErrorCode.UNAVAILABLE, "away")] * 3
    code, out, err = toban("run", "logs", "12")
    assert (code, out) == (69, "one\n")
    assert "away" in err


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_a_bad_expression_is_an_error_also_when_following(cluster: Any, toban: Any, follow: tuple[str, ...]) -> None:
    cluster.logs.failures = [TobanError(ErrorCode.INVALID_ARGUMENT, "grep '(' cannot be searched for: missing )")]
    code, _, err = toban("run", "logs", "12", "--grep", "(", "--regex", *follow)
    assert (code, err) == (65, "error: grep '(' cannot be searched for: missing )\n")


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--since", "soon"], 65, "--since: 'soon' is not a time; write 10m"),
        (["--until", "99999999w"], 65, "--until: '99999999w' is too long ago"),
        (["--since", "1m", "--until", "2m"], 65, "no line is between them"),
        (["--attempt", "9"], 66, "run 12 has no attempt 9; it has 1, 2"),
        (["--head", "1", "--tail", "1"], 64, "--tail exclude each other"),
        (["--head", "1", "-f"], 64, "--follow continues"),
        (["--regex"], 64, "is for --grep"),
        (["--raw", "--timestamps"], 64, "leave --timestamps"),
        (["--level", "loud"], 64, "'loud' is not known, use trace, debug"),
        (["--tail", "10001"], 64, "10001"),
        (["-o", "yaml"], 64, "yaml"),
    ],
)
def test_mistakes_are_one_line(cluster: Any, toban: Any, argv: list[str], code: int, words: str) -> None:
    found, out, err = toban("run", "logs", "12", *argv)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_an_unknown_run(cluster: Any, toban: Any) -> None:
    cluster.reader.runs = []
    assert toban("run", "logs", "13") == (66, "", "error: there is no run 13; see `toban run list`\n")


def test_following_one_attempt_ends_with_its_lines(cluster: Any, toban: Any) -> None:
    cluster.logs.first = [line(1, b"one")]
    cluster.logs.at_end = True
    assert toban("run", "logs", "12", "-f", "--attempt", "2") == (0, "one\n", "")
    assert list(cluster.logs.requests[0].tokens) == [7]


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("raw", "shown"), [(False, b"red\tend\n"), (True, b"\x1b]0;title\x07\x1b[31mred\tend\r\n")])
def test_a_terminal_is_protected_unless_raw(monkeypatch: pytest.MonkeyPatch, raw: bool, shown: bytes) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(written))
    answer = logs_pb2.ReadLogResponse(token=7, lines=[line(1, b"\x1b]0;title\x07\x1b[31mred\tend\r")])
    LinePrinter(Style(raw=raw)).show(answer)
    assert written.getvalue() == shown


@pytest.mark.parametrize(
    ("text", "stream", "shown"),
    [
        (b"[toban] the run was canceled", 2, b"[job] [toban] the run was canceled\n"),
        (b"\x1b[2K [TOBAN ] late", 2, b"[job]  [TOBAN ] late\n"),
        ("\u200b[toban] x".encode(), 2, "[job] \ufffd[toban] x\n".encode()),
        (b"the executor wrote [toban] x", 2, b"the executor wrote [toban] x\n"),
        (b"tobankan opens", 2, b"tobankan opens\n"),
        (b"the limit is reached", 3, b"[toban] the limit is reached\n"),
        (b"[toban] x", 3, b"[toban] [toban] x\n"),
    ],
)
def test_no_line_of_a_job_looks_like_one_of_the_executor(
    monkeypatch: pytest.MonkeyPatch, text: bytes, stream: Any, shown: bytes
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", Terminal(written))
    given = logs_pb2.LogLine(seq=1, at_unix_nanos=1, text=text, stream=stream)
    LinePrinter(Style()).show(logs_pb2.ReadLogResponse(token=7, lines=[given]))
    assert written.getvalue() == shown


@given(
    st.lists(
        st.sampled_from(
            [b"\x1b", b"[", b"]", b"2J", b"31m", b"\x07", b"\\", b"\xc2\x9b", b"\xff", b"\r", b"\x08", b"\x00"]
        )
        | st.binary(max_size=3)
        | st.text(max_size=3).map(str.encode)
    ).map(b"".join)
)
def test_nothing_that_a_job_writes_moves_a_terminal(text: bytes) -> None:
    shown = clean_bytes(text).decode()
    assert all(char.isprintable() or char in "\t\xa0" for char in shown)


@pytest.mark.parametrize("text", ["plain", "grün — 好", "a\tb", "50 % ✓"])
def test_text_stays_as_it_is(text: str) -> None:
    assert clean_bytes(text.encode()).decode() == text


def test_times_of_since() -> None:
    assert read_time_bound("--since", "1h30m", NOON) == NOON - timedelta(minutes=90)
    assert read_time_bound("--since", " 2031-03-01T00:00:00+01:00 ", NOON) == datetime(2031, 2, 28, 23, tzinfo=UTC)
    assert read_time_bound("--since", "2031-03-01 09:00", NOON) == datetime(2031, 3, 1, 9).astimezone(UTC)
    assert read_time_bound("--since", "2031-03-01", NOON) == datetime(2031, 3, 1).astimezone(UTC)
