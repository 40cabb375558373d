"""What every view uses: the calls of the cluster, the limit of streams, and the rendering of a page."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from flask import Blueprint, Flask, Response, current_app, g, make_response, render_template, request, url_for

from toban_admin_web.decide.api_models import Cluster
from toban_admin_web.decide.filters import wants_part
from toban_admin_web.decide.live import topics_of
from toban_admin_web.ports.api import Caller
from toban_admin_web.ports.changes import ChangeBoard
from toban_admin_web.ports.hooks import Hooks
from toban_admin_web.ports.joining import Joining
from toban_admin_web.ports.logs import GrantedTicket, LogSource, ReadTicket
from toban_admin_web.ports.people import Credential, IdTokens
from toban_admin_web.views.api.request_rate import RequestRate
from toban_admin_web.views.leader_pill import LeaderPill, Seen
from toban_admin_web.views.live_pages import LivePages
from toban_admin_web.views.part_cache import PartCache
from toban_admin_web.views.people.oidc_limits import OidcLimits
from toban_admin_web.views.people.session_gate import SessionGate
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_runtime.clock import Clock

EXTENSION = "toban"
# Live logs and streams of runs that a person has open at a time.
STREAMS_OF_A_PERSON = 4
T = TypeVar("T")

_streams = metrics.gauge("toban_site_streams", "Open log streams and downloads.")
_refused = metrics.counter(
    "toban_site_streams_refused_total",
    "Log streams and downloads refused because every stream slot, or each of the person, was in use.",
)


class StreamSlots:
    """A limit of long responses at a time, since each one occupies a thread: of all and of each person, streams and others apart.

    Others are downloads, searches and claims of external work. Streams leave a quarter of the places to them.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.streams = size - size // 4
        # All workers with one token are one person.
        self.others_of_a_person = max(1, size // 2)
        self._lock = threading.Lock()
        self.in_use = 0
        # By person.
        self._watching: Counter[str] = Counter()
        self._others: Counter[str] = Counter()

    def acquire(self, person: str, *, stream: bool) -> Callable[[], None] | None:
        """Occupies a slot and returns its release function, which may be called more than once. None when there is none, see `refusal`."""
        with self._lock:
            if self._why(person, stream=stream):
                _refused.inc()
                return None
            self._count(+1, person, stream=stream)
        released = threading.Event()

        def release() -> None:
            with self._lock:
                if not released.is_set():
                    released.set()
                    self._count(-1, person, stream=stream)

        return release

    def refusal(self, person: str, *, stream: bool) -> str:
        """Why `acquire` finds no slot now, with the remedy; a slot may have become free since."""
        with self._lock:
            return self._why(person, stream=stream) or "a long response has just ended; try again"

    def _why(self, person: str, *, stream: bool) -> str:
        if stream and self._watching[person] >= STREAMS_OF_A_PERSON:
            return (
                f"{person} has {STREAMS_OF_A_PERSON} open streams at this replica, the most for one person; "
                "close a live log or a stream of a run"
            )
        if not stream and self._others[person] >= self.others_of_a_person:
            return (
                f"{person} has {self.others_of_a_person} open downloads, searches and claims at this replica, the most for one person; "
                "wait for the end of one, or raise SCHEDULER_HTTP_THREADS"
            )
        if self.in_use >= self.size:
            return (
                f"all {self.size} streams and downloads of this replica are in use; "
                "close a live log or wait for a download to end, or raise SCHEDULER_HTTP_THREADS"
            )
        if stream and self._watching.total() >= self.streams:
            return (
                f"all {self.streams} streams of this replica are in use, the other {self.size - self.streams} places are for downloads and "
                "searches; close a live log, or raise SCHEDULER_HTTP_THREADS"
            )
        return ""

    def usage(self) -> tuple[int, int]:
        """(slots in use, all slots)."""
        return self.in_use, self.size

    def _count(self, change: int, person: str, *, stream: bool) -> None:
        self.in_use += change
        mine = self._watching if stream else self._others
        mine[person] += change
        if not mine[person]:
            del mine[person]
        _streams.set(self.in_use)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewContext:
    """Dependencies of the views."""

    open_caller: Callable[[Credential], Caller]
    """The calls of one request, for its person."""
    rate: RequestRate
    """Of the API."""
    gate: SessionGate
    id_tokens: IdTokens
    oidc_limits: OidcLimits
    logs: LogSource
    hooks: Hooks
    joining: Joining
    leader_pill: LeaderPill
    changes: ChangeBoard
    live_pages: LivePages
    parts: PartCache
    clock: Clock
    stream_slots: StreamSlots
    stopping: threading.Event
    """Set when the process stops: streams end."""

    def install(self, app: Flask, blueprints: Iterable[Blueprint]) -> None:
        """Registers the views at `app`."""
        app.extensions[EXTENSION] = self
        self.gate.install(app)
        self.parts.install(app)
        app.jinja_env.globals["leader_pill"] = leader_pill
        app.jinja_env.globals["live_url"] = live_url
        for blueprint in blueprints:
            app.register_blueprint(blueprint)


def context() -> ViewContext:
    """The context of the current application."""
    return cast(ViewContext, current_app.extensions[EXTENSION])


def caller() -> Caller:
    """The calls of this request and its person."""
    if "caller" not in g:
        g.caller = context().open_caller(g.credential)
    return cast(Caller, g.caller)


def read(method: str, answer: type[T], /, **fields: Any) -> T:
    """A read of this request: Caller.read with the fields of the method's request."""
    found = caller().read(method, answer, fields)
    if isinstance(found, Cluster):
        context().leader_pill.take(found)
    return found


def leader_pill() -> Seen:
    """Who leads, for the bar of the page. A page about an error sends no read."""
    kept, failed = context().leader_pill, g.get("failed", "")
    if failed == "unreachable":
        kept.failed()
    return kept.now(None if failed else lambda: caller().read("JobReader.GetCluster", Cluster, {}))


def write(method: str, answer: type[T], /, **fields: Any) -> T:
    """A change by this request: Caller.write with the fields of the method's request."""
    return caller().write(method, answer, fields)


def read_ticket(*run_ids: int, by: Caller | None = None) -> ReadTicket:
    """The permission for the output of these runs, by the calls of this request. Raises PERMISSION_DENIED."""
    granted = (by or caller()).read("JobReader.GetReadTicket", GrantedTicket, {"run_ids": run_ids})
    return granted.ticket


def live_url() -> str:
    """Where this page hears of changes of what it shows."""
    return url_for(
        "live.stream",
        of=topics_of(request.endpoint or "", request.view_args or {}),
        since=f"{context().clock.wall().timestamp():.3f}",
    )


def page(template: str, **values: object) -> Response:
    """Renders `template.html`, or only `template_part.html` and the pill of the leader for the script that refreshes the page."""
    values["now"] = context().clock.wall()
    if not wants_part(request.args):
        return make_response(render_template(f"{template}.html", **values))
    g.is_part = True
    return make_response(render_template(f"{template}_part.html", **values) + render_template("leader_pill.html"))


def if_implemented(call: Callable[[], T]) -> T | None:
    """None when the release of the coordinators does not have the method, or does not know the rule of the schedule."""
    try:
        return call()
    except TobanError as error:
        if error.code not in (ErrorCode.UNIMPLEMENTED, ErrorCode.SCHEDULE_INVALID):
            raise
        return None
