"""Changes of a run and its output as server-sent events, until they end, the reader leaves or the process stops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from flask import Response
from pydantic import Field

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.api_rules import ROUTE_RULES
from toban_admin_web.decide.request_input import Input
from toban_admin_web.decide.status_styles import is_terminal
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_admin_web.views.runs.log import log_events
from toban_admin_web.views.stream_response import EVENT_STREAM, stream_response
from toban_admin_web.views.view_context import context
from toban_domain.errors import ErrorCode, TobanError

# One call of a coordinator; after it a comment shows whether the reader is still there.
WATCH_SECONDS = 10.0
PAUSE_SECONDS = 1.0
STREAM_SECONDS = 1800.0


class LogStreamQuery(Input):
    """Where the output begins."""

    after: str = Field("", max_length=40, description="Id of the last event that was read; also as Last-Event-ID.")


def _states(call: Call) -> Response:
    def body() -> Iterator[bytes]:
        states = _watched(call)
        # The first one is read now, while its error can still be the status.
        return _encoded(chain([next(states, None)], states))

    return stream_response(body, EVENT_STREAM)


def _watched(call: Call) -> Iterator[Run | None]:
    """Each state of the run once; None where nothing is new for a while."""
    clock, stopping, version = context().clock, context().stopping, -1
    method, ends_at = ROUTE_RULES[call.endpoint.route].method, context().clock.monotonic() + STREAM_SECONDS
    while not stopping.is_set() and clock.monotonic() < ends_at:
        try:
            for run in call.caller.watch(method, Run, {"id": call.path["id"]}, seconds=WATCH_SECONDS):
                if run.version != version:
                    version = run.version
                    yield run
                if is_terminal(run.state):
                    return
            stopping.wait(PAUSE_SECONDS)
        except TobanError as error:
            if error.code is not ErrorCode.DEADLINE_EXCEEDED or version < 0:
                raise
        yield None


def _encoded(states: Iterator[Run | None]) -> Iterator[bytes]:
    try:
        for run in states:
            if run is None:
                yield b": idle\n\n"
                continue
            yield f"id: {run.version}\nevent: run\ndata: {run.model_dump_json()}\n\n".encode()
            if is_terminal(run.state):
                yield b"event: end\ndata: {}\n\n"
    except TobanError:
        # The reader asks again, and gets the error as the status of its answer.
        return


def _log(call: Call) -> Response:
    return log_events(call.path["id"], call.query.after)


ENDPOINTS = (
    Endpoint(
        route="GET /runs/{id}/stream",
        summary="The run at once and after each change, as server-sent events.",
        answer=None,
        content_types=(EVENT_STREAM,),
        handle=_states,
    ),
    Endpoint(
        route="GET /runs/{id}/logs/stream",
        summary="The output of a run as it arrives, as server-sent events.",
        query=LogStreamQuery,
        answer=None,
        content_types=(EVENT_STREAM,),
        handle=_log,
    ),
)
