"""Both clients: the end of a run and its output, over streams that break."""

import threading
from typing import Any

import pytest

from toban import errors
from toban.client import AsyncClient, Client, Target
from toban.client.calls import Calls
from toban.client.flow import Open, Pause, Reply, TransportError
from toban.client.streams import follow_output
from toban_testing.scripted_site import ScriptedSite, breaks, event, problem, says, streams

RUNNING = {"id": 7, "job": "hello", "state": "RUNNING"}
ENDED = {**RUNNING, "state": "FAILED", "error_summary": "exit code 3"}


def lines(token: int, *numbers: int) -> bytes:
    rows = [[number, "out", "2026-11-23T10:00:00+00:00", f"line {number}", False] for number in numbers]
    return event("lines", {"token": str(token), "attempt": 1, "lines": rows})


END = event("end", {"state": "SUCCEEDED", "complete": True})


def test_a_wait_ends_with_the_run(client: Any, site: ScriptedSite) -> None:
    site.script = [
        says(200, RUNNING),
        streams(event("run", RUNNING), b": idle\n\n", event("run", ENDED)),
        says(200, ENDED),
    ]
    run = client.do(lambda c: c.runs.wait(7))
    assert run.state == "FAILED"
    with pytest.raises(errors.RunFailedError, match="run 7 of hello ended as FAILED: exit code 3") as caught:
        run.check()
    assert caught.value.run is run


def test_a_wait_outlives_broken_streams_and_a_site_without_room(client: Any, site: ScriptedSite) -> None:
    site.script = [
        says(200, RUNNING),
        streams(event("run", RUNNING), breaks=True),
        problem(503, "UNAVAILABLE"),
        says(200, RUNNING),
        problem(429, "RESOURCE_EXHAUSTED", Retry_After="0"),
        says(200, ENDED),
    ]
    assert client.do(lambda c: c.runs.wait(7)).state == "FAILED"
    assert site.script == [site.script[-1]] and len(site.seen) == 6


def test_a_wait_has_an_end(client: Any, site: ScriptedSite) -> None:
    def silent(handler: Any) -> None:
        streams(event("run", RUNNING), breaks=True)(handler)
        over.wait(20)

    over = threading.Event()
    site.script = [says(200, RUNNING), silent, says(200, RUNNING)]
    with pytest.raises(TimeoutError, match=r"still RUNNING after 0\.3 s") as caught:
        client.do(lambda c: c.runs.wait(7, timeout=0.3))
    over.set()
    assert isinstance(caught.value, errors.WaitTimeoutError) and caught.value.run.state == "RUNNING"


@pytest.mark.parametrize(
    "first", [[], [says(200, RUNNING), streams(event("run", RUNNING))]], ids=["look", "later look"]
)
def test_the_end_of_a_wait_bounds_its_requests(client: Any, site: ScriptedSite, first: list[Any]) -> None:
    over, too_long = threading.Event(), threading.Event()

    def silent(_: Any) -> None:
        if not over.wait(15):
            too_long.set()

    site.script = [*first, silent]
    with pytest.raises((errors.WaitTimeoutError, errors.UnavailableError)) as caught:
        client.do(lambda c: c.runs.wait(7, timeout=0.3))
    over.set()
    assert not too_long.is_set() and isinstance(caught.value, errors.WaitTimeoutError) == bool(first)


def test_output_is_followed_from_where_it_broke(client: Any, site: ScriptedSite) -> None:
    site.script = [
        streams(lines(5, 1, 2), breaks=True),
        breaks,
        problem(429, "RESOURCE_EXHAUSTED", Retry_After="0"),
        streams(lines(5, 3), event("unavailable", {"message": "away"}), lines(9, 1)),
        streams(END),
    ]
    found = client.do(lambda c: c.runs.follow(7))
    assert [(line.token, line.seq, line.text) for line in found] == [
        (5, 1, "line 1"),
        (5, 2, "line 2"),
        (5, 3, "line 3"),
        (9, 1, "line 1"),
    ]
    paths = [seen.path.partition("after=")[2] for seen in site.seen]
    assert paths == ["", "5%3A2", "5%3A2", "5%3A2", "9%3A1"]
    assert found[-1].position == "9:1" and found[0].at is not None


def follow(client: Any, found: list[Any]) -> None:
    """Follows run 7, and keeps the lines that came before an error."""

    async def of_async(c: Any) -> None:
        async for line in c.runs.follow(7):
            found.append(line)

    def of_sync(c: Any) -> None:
        for line in c.runs.follow(7):
            found.append(line)

    client.do(lambda c: of_async(c) if isinstance(c, AsyncClient) else of_sync(c))


def test_following_ends_with_an_error_when_the_site_stays_away(connect: Any, site: ScriptedSite) -> None:
    site.script = [streams(lines(5, 1), breaks=True), breaks]
    client, found = connect(site.url, retry_seconds=0.01), []
    with pytest.raises(errors.UnavailableError) as caught:
        follow(client, found)
    assert [line.position for line in found] == ["5:1"] and not isinstance(caught.value, errors.OutputIncompleteError)
    assert site.seen[-1].path.endswith("after=5%3A1")


def test_a_silent_job_is_followed_over_many_streams(connect: Any, site: ScriptedSite) -> None:
    # More pauses than the budget has.
    site.script = [streams(b": idle\n\n")] * 30 + [streams(lines(5, 1), END)]
    found: list[Any] = []
    follow(connect(site.url, retry_seconds=0.01), found)
    assert [line.seq for line in found] == [1] and len(site.seen) == 31


def test_output_whose_end_is_missing_is_an_error_with_the_position(client: Any, site: ScriptedSite) -> None:
    incomplete = event("end", {"state": "SUCCEEDED", "complete": False})
    site.script = [streams(lines(5, 1, 2), incomplete)]
    found: list[Any] = []
    with pytest.raises(errors.OutputIncompleteError, match="after position 5:2") as caught:
        follow(client, found)
    assert (caught.value.position, [line.seq for line in found]) == ("5:2", [1, 2])
    site.script = [streams(incomplete)]
    with pytest.raises(errors.OutputIncompleteError, match="from the start"):
        follow(client, found)


def test_a_silent_connection_counts_against_the_budget() -> None:
    """Without a clock: the flow is driven by hand."""
    flow = follow_output(Calls(30.0), 7, "")
    assert isinstance(next(flow), Open)
    timeout = TransportError("no answer", is_timeout=True)
    with pytest.raises(errors.UnavailableError, match="no answer"):
        flow.throw(timeout)
    worked = follow_output(Calls(30.0), 7, "")
    next(worked)
    worked.send(Reply(status=200, headers={"content-type": "text/event-stream"}))
    worked.send(b": idle")
    assert isinstance(worked.throw(timeout), Pause) and isinstance(next(worked), Open)


def test_a_refused_stream_is_its_error(client: Any, site: ScriptedSite) -> None:
    site.script = [problem(404, "RUN_NOT_FOUND")]
    with pytest.raises(errors.NotFoundError):
        client.do(lambda c: c.runs.follow(7))
    with pytest.raises(errors.NotFoundError):
        client.do(lambda c: c.runs.logs(7))


def stored(*found: bytes) -> Any:
    def write(handler: Any) -> None:
        body = b"".join(one + b"\n" for one in found)
        handler.send_response(200)
        handler.send_header("Content-Type", "application/x-ndjson")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return write


LINE = b'{"token": "5", "seq": 1, "at": null, "stream": "out", "text": "a", "partial": false, "level": ""}'


def test_stored_output_ends_with_its_end(client: Any, site: ScriptedSite) -> None:
    site.script = [stored(LINE, b'{"end": true}')]
    [line] = client.do(lambda c: c.runs.logs(7, tail=5, grep="a"))
    assert (line.token, line.text) == (5, "a")
    assert site.seen[0].path == "/api/v1/runs/7/logs?format=jsonl&tail=5&grep=a"
    site.script = [stored(LINE)]
    with pytest.raises(errors.UnavailableError, match="broke off"):
        client.do(lambda c: c.runs.logs(7))
    site.script = [stored(LINE, b'{"error": "away", "code": "UNAVAILABLE"}')]
    with pytest.raises(errors.UnavailableError, match="away"):
        client.do(lambda c: c.runs.logs(7))


def test_a_reader_that_leaves_closes_its_stream(site: ScriptedSite) -> None:
    gone = threading.Event()

    def endless(handler: Any) -> None:
        streams(lines(5, 1), breaks=True)(handler)
        # Returns nothing when the client closes its end.
        if not handler.rfile.read(1):
            gone.set()

    site.script = [endless]
    with Client(Target(url=site.url, token="toban_pat_test")) as client:
        for line in client.runs.follow(7):
            assert line.seq == 1
            break
        assert gone.wait(20)
