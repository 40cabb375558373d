"""How many requests, how they ended, how long they took: labelled by view, never by address."""

from __future__ import annotations

from flask import Flask, Response, g, request

from toban_observability import metrics
from toban_runtime.clock import Clock

_requests = metrics.counter("toban_site_requests_total", "Requests by view and status.", ("view", "status"))
_seconds = metrics.histogram("toban_site_request_seconds", "Time to the first byte of an answer.", ("view",))


def install(app: Flask, clock: Clock) -> None:
    """Counts every request of `app`."""

    def begin() -> None:
        g.began = clock.monotonic()

    def end(answer: Response) -> Response:
        view = request.endpoint or "none"
        _requests.labels(view, str(answer.status_code)).inc()
        if "began" in g:
            _seconds.labels(view).observe(clock.monotonic() - g.began)
        return answer

    app.before_request(begin)
    app.after_request(end)
