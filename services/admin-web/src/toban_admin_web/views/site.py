"""What every view works with, and how it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from flask import Response, current_app, g, make_response, render_template, request

from toban_admin_web.decide.messages import Messages
from toban_admin_web.ports.cluster import ClusterReader, LogSource
from toban_observability import metrics
from toban_runtime.clock import Clock
from toban_runtime.ids import IdSource

EXTENSION = "toban"

_streams = metrics.gauge("toban_site_streams", "Live logs and downloads that are being sent.")
_refused = metrics.counter("toban_site_streams_refused_total", "Live logs and downloads refused, all places taken.")


class Places:
    """A bounded number of places for answers that take long: each holds a thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self.taken = 0

    def take(self) -> Callable[[], None] | None:
        """A place: call what it returns, once or more often, to give it back. None when all are taken."""
        if not self._free.acquire(blocking=False):
            _refused.inc()
            return None
        self._count(+1)
        given = threading.Event()

        def give() -> None:
            if not given.is_set():
                given.set()
                self._count(-1)
                self._free.release()

        return give

    def _count(self, change: int) -> None:
        with self._lock:
            self.taken += change
            _streams.set(self.taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts of the process. `open_reader(seconds)` gives a reader whose calls together have that long."""

    open_reader: Callable[[float], ClusterReader]
    logs: LogSource
    clock: Clock
    ids: IdSource
    messages: Messages
    places: Places
    stopping: threading.Event
    request_seconds: float
    names: tuple[str, ...] = ()


def site() -> Site:
    """The site that this request belongs to."""
    return cast(Site, current_app.extensions[EXTENSION])


def reader() -> ClusterReader:
    """The reader of this request: all its calls share the request's seconds."""
    if "reader" not in g:
        g.reader = site().open_reader(site().request_seconds)
    return cast(ClusterReader, g.reader)


def page(template: str, **values: object) -> Response:
    """A page `template.html`; with `?part=1` only its part `template_part.html`, for the script that keeps it fresh."""
    name = f"{template}_part.html" if wants_part() else f"{template}.html"
    return make_response(render_template(name, now=site().clock.wall(), **values))


def wants_part() -> bool:
    """Whether the script asks, which has no use for a whole page."""
    return request.args.get("part") == "1"
