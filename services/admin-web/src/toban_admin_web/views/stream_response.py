"""Responses that last: each one occupies a thread, so there is a limit of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import Response, g

from toban_admin_web.views.view_context import context
from toban_domain.errors import ErrorCode, TobanError

EVENT_STREAM = "text/event-stream"


def stream_response(body: Callable[[], Iterator[bytes]], content_type: str) -> Response:
    """A long response that occupies a stream slot until it ends. Raises RESOURCE_EXHAUSTED when none is free, and what `body` raises."""
    stream = content_type == EVENT_STREAM
    release = _acquire(stream=stream)
    try:
        response = Response(body(), content_type=content_type)
    except BaseException:
        release()
        raise
    response.call_on_close(release)
    if stream:
        # Disables buffering in proxies, which would delay the events.
        response.headers["X-Accel-Buffering"] = "no"
    return response


@contextmanager
def occupied() -> Iterator[None]:
    """Occupies a slot meanwhile, for work that lasts before the response. Raises RESOURCE_EXHAUSTED when none is free."""
    release = _acquire(stream=False)
    try:
        yield
    finally:
        release()


def _acquire(*, stream: bool) -> Callable[[], None]:
    slots, person = context().stream_slots, g.person.user
    release = slots.acquire(person, stream=stream)
    if release is None:
        raise TobanError(ErrorCode.RESOURCE_EXHAUSTED, slots.refusal(person, stream=stream))
    return release
