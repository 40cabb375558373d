"""Live logs as server-sent events, and downloads."""

from __future__ import annotations

import json
import re
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
        "lines": [[n, "stdout", "2026-11-21T00:00:00+00:00", f"line {n}", False, "", False] for n in (1, 2)],
        "dropped": 0,
    }
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(events.next)
        web.cluster.write(web.line(3, "\x1b[31mred\x1b[0m", stream=2))
        assert [(row[1], row[3]) for row in later.result(10)[2]["lines"]] == [("stderr", "\x1b[31mred\x1b[0m")]
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


def drop(web: Any, seq: int, lines: int) -> Any:
    """A line that counts dropped ones."""
    found = web.line(seq, f"… {lines:,} lines, 4 MiB left out: more than 10,000 lines a second", stream=3)
    found.dropped_lines = lines
    return found


def test_a_log_that_dropped_lines_is_never_called_complete(web: Any) -> None:
    # The drops are before the lines that the page has.
    web.cluster.write(
        drop(web, 90_000, 89_998), drop(web, 96_091, 6_091), *(web.line(n) for n in range(96_092, 96_600))
    )
    web.cluster.reader.responses["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(3600))
    text = web.page("/runs/1")
    assert "Lines that a limit dropped: 96,089." in text and "more than 10,000" not in text
    assert ">ended, not complete: lines were dropped</p>" in text and ">complete</p>" not in text
    assert "contains all lines" not in text
    end = web.get("/runs/1/log.txt").get_data(as_text=True)[-100:]
    assert "[toban] not complete: a limit dropped 96,089 of the lines that the job wrote\n" in end


def test_a_log_without_drops_is_complete(web: Any) -> None:
    web.cluster.write(web.line(3, "… 12 lines, 4 MiB left out: as a job may print"))
    web.cluster.reader.responses["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(3600))
    text = web.page("/runs/1")
    assert ">complete</p>" in text and re.search('id="log-dropped"[^>]* hidden>', text)
    assert "not complete" not in web.get("/runs/1/log.txt").get_data(as_text=True)


def test_drops_that_cannot_be_counted_leave_it_open_whether_it_is_complete(web: Any) -> None:
    web.cluster.write(*(web.line(n) for n in range(3, 600)))
    web.cluster.reader.responses["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(3600))
    web.cluster.logs.selection_failure = TobanError(ErrorCode.UNAVAILABLE, "no")
    text = web.page("/runs/1")
    assert "line 599" in text and ">complete</p>" not in text and ">as of the page load</p>" in text


def test_a_long_line_is_cut_with_a_link_to_all_of_it(web: Any) -> None:
    parts = ["a" * 9_000, "b" * 9_000, "c" * 9_000]
    web.cluster.write(*(web.line(3 + n, text, partial=n < 2) for n, text in enumerate(parts)), web.line(6, "after"))
    text = web.page("/runs/1")
    assert "a" * 9_000 + "b" * 1_000 + "<a" in text and "b" * 1_001 not in text
    [link] = re.findall(r'<a class="whole" href="([^"]*)"', text)
    with web.get(link.replace("&amp;", "&")) as answer:
        assert answer.mimetype == "text/plain" and "".join(parts) in answer.get_data(as_text=True)
    asked = web.cluster.logs.requests[-1]
    assert (asked.token, asked.from_seq, asked.to_seq, list(asked.streams)) == (web.token, 3, 5, [1])


@pytest.mark.parametrize(
    "query", ["", "from=1:1", "from=1:2&to=1:1", "from=1:1&to=2:1", "from=0:1&to=0:2", "from=x&to=y"]
)
def test_a_line_that_is_none_is_not_found(web: Any, query: str) -> None:
    assert web.get(f"/runs/1/log/line?{query}").status_code == 404
    assert not web.cluster.logs.requests
