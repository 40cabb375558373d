"""The output of a run as server-sent events, and as a file."""

from __future__ import annotations

import json
from collections.abc import Iterator

from flask import Blueprint, Response, abort, g, request

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.log_cursor import parse_cursor
from toban_admin_web.decide.log_lines import LogPart
from toban_admin_web.ports.logs import ReadTicket
from toban_admin_web.views.runs.log_stream import LogEvent, LogStream
from toban_admin_web.views.stream_response import EVENT_STREAM, stream_response
from toban_admin_web.views.view_context import ViewContext, context, read, read_ticket
from toban_domain.errors import TobanError

DOWNLOAD_SECONDS = 600.0
TEXT = "text/plain; charset=utf-8"
RETRY_MILLISECONDS = 2000

views = Blueprint("log", __name__)


@views.get("/runs/<id:run_id>/log/stream")
def stream(run_id: int) -> Response:
    """Events `lines`, `unavailable` and `end`; the id of each is the cursor to resume from (Last-Event-ID or ?after=)."""
    return log_events(run_id, request.args.get("after", ""), for_page=True)


def log_events(run_id: int, after: str, *, for_page: bool = False) -> Response:
    """The output from the event Last-Event-ID, or `after`, on. Raises RUN_NOT_FOUND, and RESOURCE_EXHAUSTED when no stream slot is free."""
    run = read("JobReader.GetRun", Run, id=run_id)
    cursor = parse_cursor(request.headers.get("Last-Event-ID", "") or after)
    events = LogStream(context=context(), run=run, cursor=cursor, credential=g.credential, for_page=for_page)
    return stream_response(lambda: encode_events(events.events()), EVENT_STREAM)


@views.get("/runs/<id:run_id>/log.txt")
def download(run_id: int) -> Response:
    """All stored output as text; terminal codes are kept."""
    ticket = _ticket(run_id)
    here = context()
    response = stream_response(lambda: _file(here, here.logs.whole(run_id, ticket, seconds=DOWNLOAD_SECONDS)), TEXT)
    response.headers["Content-Disposition"] = f'attachment; filename="run-{run_id}.log"'
    return response


@views.get("/runs/<id:run_id>/log/line")
def one_line(run_id: int) -> Response:
    """A line that the page of the run cuts: its parts of one stream, from ?from=token:seq to ?to=token:seq."""
    first, last = (parse_cursor(request.args.get(name, "")) for name in ("from", "to"))
    if not first.token or first.token != last.token or not 0 < first.seq <= last.seq:
        abort(404)
    ticket = _ticket(run_id)
    here = context()
    fields = {
        "token": first.token,
        "from_seq": first.seq,
        "to_seq": last.seq,
        "streams": [request.args.get("stream", "")],
    }
    return stream_response(
        lambda: _file(here, here.logs.select(run_id, ticket, fields, seconds=DOWNLOAD_SECONDS)), TEXT
    )


def _ticket(run_id: int) -> ReadTicket:
    read("JobReader.GetRun", Run, id=run_id)
    return read_ticket(run_id)


def encode_events(events: Iterator[LogEvent]) -> Iterator[bytes]:
    """As server-sent events."""
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    for event in events:
        if event.name == "idle":
            # A comment keeps proxies from closing the connection, and its failure shows that the browser has left.
            yield b": idle\n\n"
            continue
        data = json.dumps(event.data, ensure_ascii=False, separators=(",", ":"))
        yield f"id: {event.cursor}\nevent: {event.name}\ndata: {data}\n\n".encode()


def _file(here: ViewContext, parts: Iterator[LogPart]) -> Iterator[bytes]:
    token = dropped = 0
    ends_at = here.clock.monotonic() + DOWNLOAD_SECONDS
    try:
        for part in parts:
            for line in part.lines:
                if here.clock.monotonic() > ends_at:
                    yield f"\n[toban] the log ends here: the download exceeded {DOWNLOAD_SECONDS:g} s\n".encode()
                    return
                if token and line.token != token:
                    yield b"\n"
                token = line.token
                dropped += line.dropped_lines
                yield line.text.encode() + (b"" if line.partial else b"\n")
    except TobanError as error:
        yield f"\n[toban] the log ends here: {error.message}\n".encode()
    if dropped:
        yield f"\n[toban] not complete: a limit dropped {dropped:,} of the lines that the job wrote\n".encode()
