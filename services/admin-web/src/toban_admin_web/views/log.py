"""The output of a run as server-sent events, and as a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from flask import Blueprint, Response, g, request

from toban_admin_web.decide.log_cursor import parse_cursor
from toban_admin_web.views.log_stream import LogEvent, LogStream
from toban_admin_web.views.view_context import ViewContext, context, reader
from toban_domain.errors import ErrorCode, TobanError

DOWNLOAD_SECONDS = 600.0
RETRY_MILLISECONDS = 2000

views = Blueprint("log", __name__)


@views.get("/runs/<id:run_id>/log/stream")
def stream(run_id: int) -> Response:
    """Events `lines`, `unavailable` and `end`; the id of each is the cursor to resume from (Last-Event-ID or ?after=)."""
    cursor = parse_cursor(request.headers.get("Last-Event-ID", "") or request.args.get("after", ""))
    reader().run(run_id)
    events = LogStream(context=context(), run_id=run_id, cursor=cursor, credential=g.credential).events()
    response = _in_slot(lambda: _encode(events), "text/event-stream")
    # Disables buffering in proxies, which would delay the events.
    response.headers["X-Accel-Buffering"] = "no"
    return response


@views.get("/runs/<id:run_id>/log.txt")
def download(run_id: int) -> Response:
    """All stored output as text; terminal codes are kept."""
    reader().run(run_id)
    here = context()
    response = _in_slot(lambda: _file(here, run_id), "text/plain; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="run-{run_id}.log"'
    return response


def _in_slot(body: Callable[[], Iterator[bytes]], content_type: str) -> Response:
    """A long response that occupies a stream slot until it ends. Raises RESOURCE_EXHAUSTED when none is free."""
    slots = context().stream_slots
    release = slots.acquire()
    if release is None:
        raise TobanError(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"all {slots.size} log streams are in use; close a page with a live log, or raise SCHEDULER_HTTP_THREADS",
        )
    response = Response(body(), content_type=content_type)
    response.call_on_close(release)
    return response


def _encode(events: Iterator[LogEvent]) -> Iterator[bytes]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    for event in events:
        if event.name == "idle":
            # A comment keeps proxies from closing the connection, and its failure shows that the browser has left.
            yield b": idle\n\n"
            continue
        data = json.dumps(event.data, ensure_ascii=False, separators=(",", ":"))
        yield f"id: {event.cursor}\nevent: {event.name}\ndata: {data}\n\n".encode()


def _file(here: ViewContext, run_id: int) -> Iterator[bytes]:
    token = 0
    ends_at = here.clock.monotonic() + DOWNLOAD_SECONDS
    try:
        for part in here.logs.whole(run_id, seconds=DOWNLOAD_SECONDS):
            for line in part.lines:
                if here.clock.monotonic() > ends_at:
                    yield f"\n[toban] the log ends here: the download exceeded {DOWNLOAD_SECONDS:g} s\n".encode()
                    return
                if token and line.token != token:
                    yield b"\n"
                token = line.token
                yield line.text.encode() + (b"" if line.partial else b"\n")
    except TobanError as error:
        yield f"\n[toban] the log ends here: {error.message}\n".encode()
