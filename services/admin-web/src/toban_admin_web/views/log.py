"""The output of a run as it comes (server-sent events), and as a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from flask import Blueprint, Response, request

from toban_admin_web.decide.follow import parse_cursor
from toban_admin_web.views.live import Live, LogEvent
from toban_admin_web.views.site import Site, reader, site
from toban_domain.errors import ErrorCode, TobanError

DOWNLOAD_SECONDS = 600.0
RETRY_MILLISECONDS = 2000

views = Blueprint("log", __name__)


@views.get("/runs/<id:run_id>/log/stream")
def stream(run_id: int) -> Response:
    """Events `lines`, `trouble` and `end`; the id of each is the cursor to go on from (Last-Event-ID, or ?after=)."""
    cursor = parse_cursor(request.headers.get("Last-Event-ID", "") or request.args.get("after", ""))
    reader().run(run_id)
    events = Live(site=site(), run_id=run_id, cursor=cursor).events()
    answer = _held(lambda: _encoded(events), "text/event-stream")
    # For proxies in between: events are worth nothing when they are collected first.
    answer.headers["X-Accel-Buffering"] = "no"
    return answer


@views.get("/runs/<id:run_id>/log.txt")
def download(run_id: int) -> Response:
    """Everything that is stored, as text; terminal codes stay as the job wrote them."""
    reader().run(run_id)
    here = site()
    answer = _held(lambda: _text(here, run_id), "text/plain; charset=utf-8")
    answer.headers["Content-Disposition"] = f'attachment; filename="run-{run_id}.log"'
    return answer


def _held(body: Callable[[], Iterator[bytes]], kind: str) -> Response:
    """A long answer, which holds a place until it ends or the browser leaves. Raises RESOURCE_EXHAUSTED when there is none."""
    give_back = site().places.take()
    if give_back is None:
        raise TobanError(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"{site().places.size} logs are being read already; close one, or raise SCHEDULER_HTTP_THREADS",
        )
    answer = Response(body(), content_type=kind)
    answer.call_on_close(give_back)
    return answer


def _encoded(events: Iterator[LogEvent]) -> Iterator[bytes]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    for event in events:
        if event.name == "quiet":
            # A comment: keeps proxies from closing, and tells us when the browser has left.
            yield b": quiet\n\n"
            continue
        data = json.dumps(event.data, ensure_ascii=False, separators=(",", ":"))
        yield f"id: {event.cursor}\nevent: {event.name}\ndata: {data}\n\n".encode()


def _text(here: Site, run_id: int) -> Iterator[bytes]:
    token = 0
    ends_at = here.clock.monotonic() + DOWNLOAD_SECONDS
    try:
        for part in here.logs.whole(run_id, seconds=DOWNLOAD_SECONDS):
            for line in part.lines:
                if here.clock.monotonic() > ends_at:
                    yield f"\n[toban] the log ends here: it was taken for more than {DOWNLOAD_SECONDS:g} s\n".encode()
                    return
                if token and line.token != token:
                    yield b"\n"
                token = line.token
                yield line.text.encode() + (b"" if line.partial else b"\n")
    except TobanError as error:
        yield f"\n[toban] the log ends here: {error.message}\n".encode()
