"""A span a request, below the `traceparent` that it came with; nothing while tracing is off."""

from __future__ import annotations

from contextlib import ExitStack

from flask import Flask, g, request

from toban_domain.traceparent import parse
from toban_observability import tracing


def install(app: Flask) -> None:
    """Traces every request of `app` but for its files."""

    def begin() -> None:
        if tracing.enabled() and request.endpoint not in (None, "static"):
            g.trace = ExitStack()
            parent = parse(request.headers.get(tracing.TRACEPARENT, ""))
            g.trace.enter_context(tracing.span(f"{request.method} {request.endpoint}", kind="server", parent=parent))

    def end(_error: BaseException | None) -> None:
        if "trace" in g:
            g.trace.close()

    app.before_request(begin)
    app.teardown_request(end)
