"""Live logs as server-sent events, and downloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb


class Events:
    """The events of one stream, read one by one."""

    def __init__(self, answer: Any) -> None:
        assert answer.status_code == 200, answer.get_data(as_text=True)
        assert answer.mimetype == "text/event-stream"
        self._answer = answer
        self._iterator = self._parsed()

    def next(self) -> tuple[str, str, Any]:
        """(name, id, data) of the next event that is not a comment; raises StopIteration at the end."""
        return next(self._iterator)

    def rest(self) -> list[tuple[str, str, Any]]:
        return list(self._iterator)

    def close(self) -> None:
        self._answer.close()

    def _parsed(self) -> Iterator[tuple[str, str, Any]]:
        text = b""
        for piece in self._answer.iter_encoded():
            *blocks, text = (text + piece).split(b"\n\n")
            for block in blocks:
                fields = dict(part.split(": ", 1) for part in block.decode().splitlines() if not part.startswith(":"))
                if "event" in fields:
                    yield fields["event"], fields["id"], json.loads(fields["data"])


def follow(web: Any, after: str = "", **headers: str) -> Events:
    query = f"?after={after}" if after else ""
    return Events(web.client.get(f"/runs/1/log/stream{query}", headers=headers, buffered=False))


def texts(data: Any) -> list[str]:
    return [row[3] for row in data["lines"]]


def finish(web: Any, state: str = "SUCCEEDED", **given: Any) -> None:
    web.cluster.reader.responses["GetRun"] = web.run(1, state, finished_at=web.stamp(0), **given)


def test_lines_arrive_until_the_run_ends(web: Any) -> None:
    events = follow(web)
    name, cursor, data = events.next()
    assert (name, cursor) == ("lines", f"{web.token}:2")
    assert data == {
        "token": str(web.token),
        "attempt": 1,
        "lines": [[n, "stdout", "2026-11-21T00:00:00+00:00", f"line {n}", False] for n in (1, 2)],
    }
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(events.next)
        web.cluster.write(web.line(3, "\x1b[31mred\x1b[0m", stream=2))
        assert [(row[1], row[3]) for row in later.result(10)[2]["lines"]] == [("stderr", "red")]
        last = pool.submit(events.next)
        finish(web)
        web.cluster.write(sealed=True)
        assert last.result(10) == ("end", f"{web.token}:3", {"state": "SUCCEEDED", "complete": True})
    assert events.rest() == []


def tickets_asked(web: Any) -> int:
    return sum(isinstance(one, pb.GetReadTicketRequest) for one in web.cluster.reader.requests)


@pytest.mark.parametrize("path", ["/runs/1", "/runs/1/log.txt", "/runs/1/log/stream"])
def test_each_read_carries_a_ticket_of_the_person(web: Any, path: str) -> None:
    finish(web)
    web.cluster.write(sealed=True)
    web.get(path).get_data()
    assert {one.ticket.body for one in web.cluster.logs.requests} == {b"a ticket"}
    at = next(n for n, one in enumerate(web.cluster.reader.requests) if isinstance(one, pb.GetReadTicketRequest))
    assert list(web.cluster.reader.requests[at].run_ids) == [1]
    assert web.cluster.reader.metadata[at]["toban-credential"] in web.cluster.accounts.sessions


def test_without_a_ticket_there_is_no_output(web: Any) -> None:
    web.cluster.reader.responses["GetReadTicket"] = TobanError(
        ErrorCode.PERMISSION_DENIED, "user ada may not see run 1", detail={"user": "ada"}
    )
    assert web.get("/runs/1/log.txt").status_code == 403
    assert "may not see run 1" in web.page("/runs/1")
    assert [(name, data["message"]) for name, _, data in follow(web).rest()] == [
        ("unavailable", "user ada may not see run 1")
    ]
    assert web.cluster.logs.requests == []


def test_a_ticket_is_used_until_a_read_fails(web: Any) -> None:
    """As when a log-archiver says that it has expired."""
    second = web.token + 5
    web.cluster.write(sealed=True)
    events = follow(web)
    assert texts(events.next()[2]) == ["line 1", "line 2"]
    attempts = [{"token": web.token, "attempt": 1}, {"token": second, "attempt": 2}]
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(events.next)
        web.cluster.reader.responses["GetRun"] = web.run(1, "RUNNING", token=second, attempts=attempts)
        web.cluster.write(web.line(1, "again"), token=second)
        assert texts(later.result(10)[2]) == ["again"]
        assert tickets_asked(web) == 1
        failed = pool.submit(events.next)
        web.cluster.logs.failure = TobanError(ErrorCode.TICKET_EXPIRED, "the read ticket ended")
        web.cluster.write(web.line(2, "x"), token=second)
        found = failed.result(20)
        assert found[0] in ("lines", "unavailable")
        if found[0] == "lines":
            assert pool.submit(events.next).result(20)[0] == "unavailable"
        web.cluster.logs.failure = None
        last = pool.submit(events.rest)
        finish(web, token=second, attempts=attempts)
        web.cluster.write(token=second, sealed=True)
        assert last.result(20)[-1][0] == "end"
    assert tickets_asked(web) > 1


def test_a_stream_resumes_at_its_cursor(web: Any) -> None:
    finish(web)
    web.cluster.write(web.line(3), sealed=True)
    events = follow(web, f"{web.token}:2")
    assert texts(events.next()[2]) == ["line 3"]
    assert events.next()[0] == "end"
    # After a lost connection, the browser's Last-Event-ID takes precedence over the URL.
    again = follow(web, f"{web.token}:1", **{"Last-Event-ID": f"{web.token}:3"})
    assert [name for name, _, _ in again.rest()] == ["end"]


def test_a_retry_of_the_run_is_followed(web: Any) -> None:
    second = web.token + 5
    attempts = [
        {"token": web.token, "attempt": 1, "state": "FAILED"},
        {"token": second, "attempt": 2, "state": "RUNNING"},
    ]
    web.cluster.write(sealed=True)
    events = follow(web)
    assert texts(events.next()[2]) == ["line 1", "line 2"]
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(events.next)
        web.cluster.reader.responses["GetRun"] = web.run(1, "RUNNING", token=second, attempts=attempts)
        web.cluster.write(web.line(1, "again"), token=second)
        name, cursor, data = later.result(10)
        assert (name, cursor, data["attempt"], texts(data)) == ("lines", f"{second}:1", 2, ["again"])
        last = pool.submit(events.next)
        finish(web, "FAILED", token=second, attempts=attempts)
        web.cluster.write(token=second, sealed=True)
        assert last.result(10)[0] == "end"


def test_the_log_of_a_run_without_output_ends(web: Any) -> None:
    web.cluster.logs.lines.clear()
    finish(web)
    assert [(name, data["complete"]) for name, _, data in follow(web).rest()] == [("end", True)]


def test_the_log_of_a_run_without_an_attempt_ends_at_once(web: Any) -> None:
    web.cluster.logs.lines.clear()
    finish(web, "SKIPPED", token=0, attempts=[])
    assert [name for name, _, _ in follow(web).rest()] == ["end"]


def test_a_stream_reports_an_outage_and_resumes(web: Any) -> None:
    events = follow(web)
    events.next()
    web.refuse("GetRun", ErrorCode.UNAVAILABLE, "away")
    name, cursor, data = events.next()
    assert (name, cursor) == ("unavailable", f"{web.token}:2") and "coordinator" in data["message"]
    web.cluster.reader.responses["GetRun"] = web.run()
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(events.next)
        web.cluster.write(web.line(3))
        assert texts(later.result(15)[2]) == ["line 3"]
    events.close()


def test_streams_are_limited_and_release_their_slots(new_web: Any) -> None:
    web = new_web(http_threads=4)
    first, second = follow(web), follow(web)
    first.next()
    refused = web.client.get("/runs/1/log/stream")
    assert refused.status_code == 503 and refused.headers["Retry-After"]
    assert web.get("/runs").status_code == 200, "pages are still served"
    # One that was read from, and one that was not.
    first.close()
    second.close()
    assert web.worker.context.stream_slots.in_use == 0
    third = follow(web)
    assert third.next()[0] == "lines"
    third.close()


def test_streams_end_when_the_site_stops(web: Any) -> None:
    events = follow(web)
    events.next()
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(events.rest)
        web.worker.context.stopping.set()
        assert rest.result(10) == []


def test_download_of_the_whole_log(web: Any) -> None:
    web.cluster.write(web.line(3, "\x1b[31mraw"), web.line(4, "no end", partial=True))
    with web.get("/runs/1/log.txt") as answer:
        assert answer.get_data(as_text=True) == "line 1\nline 2\n\x1b[31mraw\nno end"
        assert answer.mimetype == "text/plain" and 'filename="run-1.log"' in answer.headers["Content-Disposition"]
    assert web.worker.context.stream_slots.in_use == 0


def test_an_incomplete_download_ends_with_the_error(web: Any) -> None:
    web.cluster.stop_archiver()
    assert "the log ends here: no log-archiver answers" in web.get("/runs/1/log.txt").get_data(as_text=True)


def test_the_run_is_asked_for_once_before_the_first_lines(web: Any) -> None:
    events = follow(web)
    assert events.next()[0] == "lines"
    assert sum(isinstance(one, pb.GetRunRequest) for one in web.cluster.reader.requests) == 1
    events.close()
