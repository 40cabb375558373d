"""Commands over REST while the site restarts, has no room, or answers break off: resumed, or ended with an error, never taken as complete."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from toban.client.answers import retry_after_of
from toban.client.flow import RetryBudget
from toban_cli import follow
from toban_cli.rest.client import RestClient
from toban_cli.rest.site import Site
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.http_server import ScriptServer

Toban = Callable[..., tuple[int, str, str]]
TOKEN = "toban_pat_" + "0" * 64
JSON, LINES, EVENTS = "application/json", "application/x-ndjson", "text/event-stream"
END = b'{"end": true}\n'


class Script(BaseHTTPRequestHandler):
    """Gives the next of `server.answers`: status, headers, pieces of the body, and whether the body has its end."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        """The next answer."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path))
        if not self.server.answers:
            self.close_connection = True
            return
        status, headers, pieces, ends = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        if ends:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = not ends

    do_POST = do_GET

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A site whose `answers` a test sets; `asked` is what came. The commands go there."""
    made: Any = ScriptServer(("127.0.0.1", 0), Script)
    made.answers, made.asked = [], []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("TOBAN_URL", f"http://127.0.0.1:{made.server_port}")
    monkeypatch.setenv("TOBAN_TOKEN", TOKEN)
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the commands would have waited each time."""
    found: list[float] = []

    class Recorded:
        """An event that no test waits for."""

        def wait(self, seconds: float) -> bool:
            found.append(seconds)
            return False

    monkeypatch.setattr("toban.client.sync_transport.time.sleep", found.append)
    # Pauses without their random part.
    monkeypatch.setattr("random.uniform", lambda low, _: low)
    monkeypatch.setattr(follow, "Event", Recorded)
    return found


def answer(body: Any, status: int = 200, **headers: str) -> Any:
    return status, {"Content-Type": JSON, **headers}, [json.dumps(body).encode()], True


def refusal(status: int, code: str, **headers: str) -> Any:
    return answer({"status": status, "code": code, "detail": "not now"}, status, **headers)


def run_in(state: str) -> Any:
    return answer({"id": "12", "job": "hello", "state": state, "attempts": [{"token": "7", "attempt": 1}]})


def line(seq: int, token: int = 7) -> bytes:
    one = {"token": str(token), "seq": seq, "at": None, "stream": "stdout", "partial": False, "level": None}
    return json.dumps({**one, "text": f"line {seq}"}).encode() + b"\n"


def log(*pieces: bytes, ends: bool = True) -> Any:
    return 200, {"Content-Type": LINES}, list(pieces), ends


def event(name: str, **data: Any) -> bytes:
    return f"id: 7:1\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()


def new_line(seq: int, token: int = 7) -> bytes:
    return event("lines", token=str(token), attempt=1, lines=[[seq, "stdout", "", "", False]])


def events(*pieces: bytes, ends: bool = True) -> Any:
    return 200, {"Content-Type": EVENTS}, list(pieces), ends


def asked_for(site: Any, word: str) -> list[dict[str, list[str]]]:
    """The queries of the requests to paths with this end."""
    return [parse_qs(urlsplit(path).query) for _, path in site.asked if urlsplit(path).path.endswith(word)]


@pytest.mark.parametrize("ends", [False, True], ids=["the connection ends", "the answer ends without its end"])
def test_a_log_that_breaks_off_between_two_chunks_goes_on_after_its_last_line(
    site: Any, toban: Toban, ends: bool
) -> None:
    site.answers = [run_in("SUCCEEDED"), log(line(1), line(2), ends=ends), run_in("SUCCEEDED"), log(line(3), END)]
    assert toban("run", "logs", "12") == (0, "line 1\nline 2\nline 3\n", "")
    assert asked_for(site, "/logs")[1]["from_seq"] == ["3"] and asked_for(site, "/logs")[1]["token"] == ["7"]


@pytest.mark.parametrize("pieces", [[], [line(1)[:20]], [b"\n"[:0]]])
@pytest.mark.parametrize("ends", [False, True])
def test_a_log_that_breaks_off_before_any_line_is_an_error(
    site: Any, toban: Toban, pieces: list[bytes], ends: bool
) -> None:
    site.answers = [run_in("SUCCEEDED"), log(*filter(None, pieces), ends=ends)]
    code, out, err = toban("run", "logs", "12")
    assert (code, out) == (69, "") and "toban itself" not in err
    assert "broke off before its end" in err or "in the middle of an answer" in err


def test_an_error_in_the_middle_of_a_log_is_its_error(site: Any, toban: Toban) -> None:
    failed = json.dumps({"error": "this day is damaged", "code": "INTERNAL"}).encode() + b"\n"
    site.answers = [run_in("SUCCEEDED"), log(line(1), failed)]
    code, out, err = toban("run", "logs", "12")
    assert (code, out) == (70, "line 1\n") and "this day is damaged" in err


@pytest.mark.parametrize("ends", [False, True], ids=["the connection ends", "the stream ends without `end`"])
def test_a_stream_that_ends_before_the_output_goes_on_there(
    site: Any, toban: Toban, waits: list[float], ends: bool
) -> None:
    site.answers = [
        run_in("RUNNING"),
        events(new_line(2), ends=ends),
        log(line(1), line(2), END),
        # The run has ended meanwhile, and its last line is still to come.
        run_in("SUCCEEDED"),
        events(new_line(3), event("end", state="SUCCEEDED", complete=True)),
        log(line(3), END),
        run_in("SUCCEEDED"),
    ]
    code, out, err = toban("run", "logs", "12", "--follow")
    assert (code, out) == (0, "line 1\nline 2\nline 3\n") and "warning" not in err
    assert asked_for(site, "/logs/stream") == [{}, {"after": ["7:2"]}]


def test_a_line_whose_read_breaks_is_read_again(site: Any, toban: Toban, waits: list[float]) -> None:
    site.answers = [
        run_in("RUNNING"),
        events(new_line(3)),
        log(line(1), line(2), ends=False),
        run_in("RUNNING"),
        events(new_line(3), event("end", state="SUCCEEDED", complete=True)),
        log(line(3), END),
        run_in("SUCCEEDED"),
    ]
    code, out, _ = toban("run", "logs", "12", "--follow")
    assert (code, out) == (0, "line 1\nline 2\nline 3\n")
    assert asked_for(site, "/logs/stream")[1] == {"after": ["7:2"]}


def test_following_one_attempt_survives_a_restart(site: Any, toban: Toban, waits: list[float]) -> None:
    site.answers = [
        run_in("RUNNING"),
        events(new_line(1), ends=False),
        log(line(1), END),
        refusal(503, "UNAVAILABLE", **{"Retry-After": "5"}),
        events(new_line(2), event("end", state="SUCCEEDED", complete=True)),
        log(line(2), END),
    ]
    code, out, _ = toban("run", "logs", "12", "--follow", "--attempt", "1")
    assert (code, out) == (0, "line 1\nline 2\n") and 5.0 in waits


def test_output_whose_end_has_not_arrived_is_named(site: Any, toban: Toban, waits: list[float]) -> None:
    site.answers = [
        run_in("RUNNING"),
        events(new_line(1), event("end", state="SUCCEEDED", complete=False)),
        log(line(1), END),
        run_in("SUCCEEDED"),
    ]
    code, out, err = toban("run", "logs", "12", "--follow")
    assert (code, out) == (0, "line 1\n") and "the end of the output of run 12 has not arrived" in err


def test_streams_that_always_break_off_do_not_hold_up_a_run_that_has_ended(
    site: Any, toban: Toban, waits: list[float]
) -> None:
    site.answers = [run_in("SUCCEEDED"), *[events(ends=False), run_in("SUCCEEDED")] * 30]
    code, _, err = toban("run", "logs", "12", "--follow")
    assert code == 0 and "`toban run logs 12` reads what is stored" in err and site.answers


STARTED = answer({"runs": [{"run_id": "12", "created": True}]}, 201)
ENDED = events(event("run", id="12"), event("end"))


@pytest.mark.parametrize(
    "refused",
    [
        refusal(429, "RESOURCE_EXHAUSTED", **{"Retry-After": "40"}),
        refusal(503, "UNAVAILABLE", **{"Retry-After": "40"}),
        (502, {"Content-Type": "text/html", "Retry-After": "40"}, [b"<html>"], True),
    ],
)
def test_a_wait_goes_on_when_the_site_has_no_room(site: Any, toban: Toban, waits: list[float], refused: Any) -> None:
    site.answers = [refused, STARTED, refused, run_in("RUNNING"), refused, run_in("RUNNING"), ENDED, run_in("FAILED")]
    code, _, err = toban("run", "start", "hello", "--wait")
    assert code == 1 and "run 12 FAILED" in err and waits.count(40.0) >= 1
    started = [path for verb, path in site.asked if verb == "POST"]
    assert len(started) == 2


def test_a_wait_outlives_a_restart(site: Any, toban: Toban, waits: list[float]) -> None:
    gone = events(ends=False)
    site.answers = [STARTED, gone, *[(200, {}, [], False)] * 5, run_in("RUNNING"), ENDED, run_in("SUCCEEDED")]
    code, _, err = toban("run", "start", "hello", "--wait")
    assert code == 0 and "run 12 SUCCEEDED" in err


def test_a_wait_that_would_last_too_long_ends_with_the_answer(site: Any, toban: Toban, waits: list[float]) -> None:
    site.answers = [STARTED, ENDED, refusal(429, "RESOURCE_EXHAUSTED", **{"Retry-After": "300"})]
    code, _, err = toban("run", "start", "hello", "--wait")
    assert code == 75 and "try again after 300 s" in err and 300.0 not in waits


def test_a_site_that_stays_away_ends_the_wait(site: Any, toban: Toban, waits: list[float]) -> None:
    site.answers = [STARTED]
    code, _, err = toban("run", "start", "hello", "--wait")
    assert code == 69 and "cannot reach the site" in err and 50 < sum(waits) < 80


def test_a_command_that_waits_for_nothing_does_not_wait(site: Any, toban: Toban, waits: list[float]) -> None:
    site.answers = [refusal(429, "RESOURCE_EXHAUSTED", **{"Retry-After": "40"})]
    code, _, err = toban("run", "start", "hello")
    assert code == 75 and "try again after 40 s" in err and waits == []


def test_a_change_is_never_sent_twice(site: Any, waits: list[float]) -> None:
    site.answers = [refusal(503, "UNAVAILABLE", **{"Retry-After": "1"})]
    client = RestClient(Site(url=f"http://127.0.0.1:{site.server_port}", token=TOKEN))
    client.wait_for_site()
    with pytest.raises(TobanError, match="not now") as caught:
        client.call("JobControl.CancelRun", pb.CancelRunRequest(id=5))
    client.close()
    assert caught.value.code is ErrorCode.UNAVAILABLE and len(site.asked) == 1 and waits == []


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "Mon, 23 Nov 2026 16:00:30 GMT", "date": "Mon, 23 Nov 2026 16:00:00 GMT"}, 30.0),
        ({"retry-after": "Mon, 23 Nov 2026 16:00:00 GMT", "date": "Mon, 23 Nov 2026 16:00:30 GMT"}, 0.0),
        ({"retry-after": "Mon, 23 Nov 2026 16:00:30 GMT"}, None),
        ({"retry-after": "9" * 40}, 999_999_999.0),
    ],
)
def test_when_to_ask_again(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_of(headers) == seconds


def test_a_retry_budget_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, _: low)
    budget = RetryBudget(seconds=10)
    waits = [budget.pause_for(6.0)]
    assert waits == [6.0] and budget.pause_for(6.0) is None
    while (pause := budget.pause_for()) is not None:
        waits.append(pause)
    assert 8 < sum(filter(None, waits)) <= 10 and waits[1:4] == [0.1, 0.2, 0.4]
    assert RetryBudget(seconds=3, for_outage=False).pause_for() is None
