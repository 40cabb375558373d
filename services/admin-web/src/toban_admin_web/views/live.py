"""Changes of what a page shows, as server-sent events: the page then reads its parts again."""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import datetime

from flask import Blueprint, Response, abort, g, request

from toban_admin_web.decide.live import parse_since, parse_topics
from toban_admin_web.views.live_pages import Place
from toban_admin_web.views.stream_response import EVENT_STREAM
from toban_admin_web.views.view_context import ViewContext, context

# Between two comments, which show whether the browser is still there, seconds.
IDLE_SECONDS = 10.0
STREAM_SECONDS = 1800.0
RETRY_MILLISECONDS, FULL_RETRY_MILLISECONDS = 3000, 60_000

views = Blueprint("live", __name__)


@views.get("/live")
def stream() -> Response:
    """Events `live` (changes arrive), `away` (they do not: the page asks by itself) and `change`: a topic of ?of= may have changed since the page was
    made (?since=, seconds from 1970 on). The data of a change are the milliseconds that the page waits between two reads.
    """
    topics = parse_topics(request.args.get("of", ""))
    if not topics:
        abort(400, "of: name what the page is about: runs, cluster, settings, or run: and a number")
    here = context()
    place = here.live_pages.take(g.person.user)
    if place is None:
        # An error would be one in the console of the browser; the page asks by itself meanwhile.
        return _response(iter([f"retry: {FULL_RETRY_MILLISECONDS}\nevent: away\ndata:\n\n".encode()]))
    here.changes.wake()
    response = _response(_events(here, topics, place, parse_since(request.args.get("since", ""), here.clock.wall())))
    response.call_on_close(lambda: here.live_pages.leave(place))
    return response


def _response(body: Iterator[bytes]) -> Response:
    response = Response(body, content_type=EVENT_STREAM)
    # Disables buffering in proxies, which would delay the events.
    response.headers["X-Accel-Buffering"] = "no"
    return response


def _events(here: ViewContext, topics: Set[str], place: Place, since: datetime) -> Iterator[bytes]:
    ends_at = here.clock.monotonic() + STREAM_SECONDS
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    live = None
    with here.changes.page(since) as seen:
        while not here.stopping.is_set() and not place.ended.is_set() and here.clock.monotonic() < ends_at:
            # Whether changes arrive is said at once.
            seconds = 0.0 if live is None else IDLE_SECONDS
            news = here.changes.wait(seen, topics, seconds=seconds, ended=place.ended)
            seen = news.number
            if news.live != live:
                live = news.live
                yield b"event: live\ndata:\n\n" if live else b"event: away\ndata:\n\n"
            yield f"event: change\ndata: {here.live_pages.pause}\n\n".encode() if news.changed else b": idle\n\n"
