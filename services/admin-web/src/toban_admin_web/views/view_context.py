"""What every view uses: the readers of the cluster, the limit of streams, and the rendering of a page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar, cast

from flask import Blueprint, Flask, Response, current_app, g, make_response, render_template, request

from toban_admin_web.decide.filters import wants_part
from toban_admin_web.ports.api import Caller
from toban_admin_web.ports.cluster import ClusterReader, LogSource
from toban_admin_web.ports.hooks import Hooks
from toban_admin_web.ports.people import Credential, IdTokens
from toban_admin_web.views.api.request_rate import RequestRate
from toban_admin_web.views.oidc_limits import OidcLimits
from toban_admin_web.views.session_gate import SessionGate
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_runtime.clock import Clock

EXTENSION = "toban"
T = TypeVar("T")

_streams = metrics.gauge("toban_site_streams", "Open log streams and downloads.")
_refused = metrics.counter(
    "toban_site_streams_refused_total", "Log streams and downloads refused because every stream slot was in use."
)


class StreamSlots:
    """A limit of long responses at a time: each one occupies a thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self.in_use = 0

    def acquire(self) -> Callable[[], None] | None:
        """Occupies a slot and returns its release function, which may be called more than once. None when all are in use."""
        if not self._free.acquire(blocking=False):
            _refused.inc()
            return None
        self._count(+1)
        released = threading.Event()

        def release() -> None:
            if not released.is_set():
                released.set()
                self._count(-1)
                self._free.release()

        return release

    def usage(self) -> tuple[int, int]:
        """(slots in use, all slots)."""
        return self.in_use, self.size

    def _count(self, change: int) -> None:
        with self._lock:
            self.in_use += change
            _streams.set(self.in_use)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewContext:
    """Dependencies of the views. `open_reader(seconds, credential)` returns a reader for a person whose calls share that time."""

    open_reader: Callable[[float, Credential], ClusterReader]
    open_caller: Callable[[Credential], Caller]
    """What a request of the API calls."""
    rate: RequestRate
    """Of the API."""
    gate: SessionGate
    id_tokens: IdTokens
    oidc_limits: OidcLimits
    logs: LogSource
    hooks: Hooks
    clock: Clock
    stream_slots: StreamSlots
    stopping: threading.Event
    """Set when the process stops: streams end."""
    request_seconds: float
    """Time limit of the cluster's calls for one page."""

    def install(self, app: Flask, blueprints: Iterable[Blueprint]) -> None:
        """Registers the views at `app`."""
        app.extensions[EXTENSION] = self
        self.gate.install(app)
        for blueprint in blueprints:
            app.register_blueprint(blueprint)


def context() -> ViewContext:
    """The context of the current application."""
    return cast(ViewContext, current_app.extensions[EXTENSION])


def reader() -> ClusterReader:
    """The reader of this request: all its calls share the request's seconds."""
    if "reader" not in g:
        g.reader = context().open_reader(context().request_seconds, g.credential)
    return cast(ClusterReader, g.reader)


def page(template: str, **values: object) -> Response:
    """Renders `template.html`, or only `template_part.html` for the script that refreshes the page."""
    name = f"{template}_part.html" if wants_part(request.args) else f"{template}.html"
    return make_response(render_template(name, now=context().clock.wall(), **values))


def if_implemented(call: Callable[[], T]) -> T | None:
    """None when the release of the coordinators does not have the method."""
    try:
        return call()
    except TobanError as error:
        if error.code is not ErrorCode.UNIMPLEMENTED:
            raise
        return None
