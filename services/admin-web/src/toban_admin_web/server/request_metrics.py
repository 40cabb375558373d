"""Metrics and a trace span for each request, labelled by view, never by path."""

from __future__ import annotations

from contextlib import ExitStack

from flask import Flask, Response, g, request

from toban_domain.traceparent import parse
from toban_observability import metrics, tracing
from toban_runtime.clock import Clock

_requests = metrics.counter("toban_site_requests_total", "Requests by view and status.", ("view", "status"))
_seconds = metrics.histogram("toban_site_request_seconds", "Time to the first byte of a response.", ("view",))


def install_metrics(app: Flask, clock: Clock) -> None:
    """Counts and times every request of `app`."""

    def start() -> None:
        g.started_at = clock.monotonic()

    def record(response: Response) -> Response:
        view = request.endpoint or "none"
        _requests.labels(view, str(response.status_code)).inc()
        if "started_at" in g:
            _seconds.labels(view).observe(clock.monotonic() - g.started_at)
        return response

    app.before_request(start)
    app.after_request(record)


def install_tracing(app: Flask) -> None:
    """A span for every request of `app` except static files, below its `traceparent`; nothing while tracing is off."""

    def start() -> None:
        if tracing.enabled() and request.endpoint not in (None, "static"):
            g.trace = ExitStack()
            parent = parse(request.headers.get(tracing.TRACEPARENT, ""))
            g.trace.enter_context(tracing.span(f"{request.method} {request.endpoint}", kind="server", parent=parent))

    def end(_error: BaseException | None) -> None:
        if "trace" in g:
            g.trace.close()

    app.before_request(start)
    app.teardown_request(end)
