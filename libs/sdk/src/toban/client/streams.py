"""The end of a run and its output while they come, over breaks of the connection, as flows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toban.client.answers import BUSY, read_json, retry_after_of
from toban.client.calls import Calls, at
from toban.client.flow import (
    SILENCE_SECONDS,
    Flow,
    Item,
    NextLine,
    Now,
    Open,
    Pairs,
    Pause,
    Reply,
    Request,
    RetryBudget,
    TransportError,
    reply_to,
)
from toban.client.models import LogLine, Run
from toban.errors import ConfigError, OutputIncompleteError, UnavailableError, WaitTimeoutError

_EVENTS, _ROWS = "text/event-stream", "application/x-ndjson"
_READ_SECONDS = 600.0
_SHORT_PAUSE = 0.5
_LAST_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event of a stream; `data` is its JSON."""

    name: str
    data: Mapping[str, Any]


class EventParser:
    """Lines of a stream of server-sent events in, events out."""

    def __init__(self) -> None:
        self._name, self._data = "", ""

    def feed(self, line: bytes) -> ServerEvent | None:
        """The event that this line ends.

        >>> parser = EventParser()
        >>> [parser.feed(line) for line in (b": idle", b"event: end", b"data: {}", b"")][-1]
        ServerEvent(name='end', data={})
        """
        text = line.decode("utf-8", "replace").rstrip("\r")
        word, _, value = text.partition(": ")
        if word == "event":
            self._name = value
        elif word == "data":
            self._data += value
        elif not text and self._name:
            event = ServerEvent(self._name, json.loads(self._data or "{}"))
            self._name, self._data = "", ""
            return event
        return None


def wait_for_run(calls: Calls, run_id: int, timeout: float | None) -> Flow[Run]:
    """The ended run. Raises WaitTimeoutError after `timeout` seconds; UnavailableError when the site stays away."""
    until = float("inf") if timeout is None else (yield Now()) + timeout
    run: Run | None = None
    while True:
        left = until - (yield Now())
        try:
            # Its answer is that of a site that is there again, or the error.
            run = yield from calls.get(Run.from_json, "runs", run_id, seconds=max(_LAST_LOOK_SECONDS, left))
        except UnavailableError:
            if run is None or until > (yield Now()):
                raise
        if run.is_terminal:
            return run
        left = until - (yield Now())
        if left <= 0:
            raise WaitTimeoutError(run, timeout or 0.0)
        pause = yield from _watch(run_id, until)
        if pause:
            yield Pause(min(pause, left))


def _watch(run_id: int, until: float) -> Flow[float]:
    """Returns when the stream of a run has something to look at, with the pause until the next look, seconds."""
    timeout = min(SILENCE_SECONDS, max(_SHORT_PAUSE, until - (yield Now())))
    request = Request(method="GET", path=at("runs", run_id, "stream"), timeout=timeout)
    parser = EventParser()
    try:
        head: Reply = yield Open(request)
        if head.status in BUSY:
            # Every stream of the site is in use: looks at intervals do as well.
            asked = retry_after_of(head.headers)
            return max(_SHORT_PAUSE, 1.0 if asked is None else asked)
        _check(head, _EVENTS)
        while True:
            left = until - (yield Now())
            if left <= 0:
                return 0.0
            line = yield NextLine(min(SILENCE_SECONDS, left))
            if line is None:
                return _SHORT_PAUSE
            event = parser.feed(line)
            if event is not None and (event.name == "end" or Run.from_json(event.data).is_terminal):
                return 0.0
    except TransportError as error:
        if error.is_final:
            raise error.as_error(changes=False) from None
        return 0.0 if error.is_timeout else _SHORT_PAUSE


@dataclass(slots=True)
class _Place:
    """`position` of the last line; `is_alive`: the stream under way has sent something."""

    position: str
    is_alive: bool = False


def follow_output(calls: Calls, run_id: int, after: str) -> Flow[None]:
    """The lines after a position, as items, until the output is complete.

    A stream that breaks is opened again after its last line. Raises UnavailableError when that does not succeed in time, and
    OutputIncompleteError when the run has ended and the end of its output has not arrived at the site.
    """
    place, budget = _Place(after), RetryBudget(seconds=calls.retry_seconds)
    while True:
        failure = UnavailableError("the stream of the output ended early", code="UNAVAILABLE")
        asked, lost, place.is_alive = None, 0.0, False
        try:
            is_over, asked = yield from _follow_stream(run_id, place)
            if is_over:
                return
        except TransportError as error:
            if error.is_final:
                raise error.as_error(changes=False) from None
            failure = UnavailableError(str(error), code="UNAVAILABLE")
            # The silence of a stream that has worked is no failed try.
            lost = SILENCE_SECONDS if error.is_timeout and not place.is_alive else 0.0
        if place.is_alive:
            # Also without a line of output, since a job may print nothing for hours.
            budget = RetryBudget(seconds=calls.retry_seconds)
        pause = budget.pause_for(asked, lost)
        if pause is None:
            raise failure
        yield Pause(pause)


def _follow_stream(run_id: int, place: _Place) -> Flow[tuple[bool, float | None]]:
    """The lines of one stream, as items: whether the output is complete, and how long a site without room asks to wait, seconds."""
    query: Pairs = (("after", place.position),) if place.position else ()
    path = at("runs", run_id, "logs", "stream")
    head: Reply = yield Open(Request(method="GET", path=path, query=query, timeout=SILENCE_SECONDS))
    if head.status in BUSY:
        return False, retry_after_of(head.headers)
    _check(head, _EVENTS)
    parser = EventParser()
    while (line := (yield NextLine())) is not None:
        place.is_alive = True
        event = parser.feed(line)
        if event is not None and event.name == "end":
            if event.data.get("complete") is False:
                raise OutputIncompleteError(run_id, place.position)
            return True, None
        if event is not None and event.name == "lines":
            for one in _lines_of(event.data):
                place.position = one.position
                yield Item(one)
    return False, None


def server_events(path: str, query: Pairs, budget: RetryBudget) -> Flow[None]:
    """The events of a stream, as items, until the site ends it. It begins within the budget; raises TobanError when it breaks."""
    request = Request(method="GET", path=path, query=query, repeatable=True, timeout=SILENCE_SECONDS)
    parser = EventParser()
    try:
        _check((yield from reply_to(Open(request), budget)), _EVENTS)
        while (line := (yield NextLine())) is not None:
            if event := parser.feed(line):
                yield Item(event)
    except TransportError as error:
        raise error.as_error(changes=False) from None


def read_output(run_id: int, query: Pairs) -> Flow[None]:
    """The stored lines, as items. Raises UnavailableError for an answer that ends early: read on after the last line."""
    return stored_lines(
        run_id, query, RetryBudget(seconds=0.0), lambda one: LogLine.from_json({**one, "token": int(one["token"])})
    )


def stored_lines(run_id: int, query: Pairs, budget: RetryBudget, read: Callable[[dict[str, Any]], Any]) -> Flow[None]:
    """What `read` makes of each stored line, as items. The answer begins within the budget; raises TobanError, also when it ends early."""
    path = at("runs", run_id, "logs")
    # A search in a large log may find nothing for as long as the site reads.
    request = Request(
        method="GET", path=path, query=(("format", "jsonl"), *query), repeatable=True, timeout=_READ_SECONDS
    )
    try:
        _check((yield from reply_to(Open(request), budget)), _ROWS)
        while (line := (yield NextLine(_READ_SECONDS))) is not None:
            found = json.loads(line)
            if found.get("end"):
                return
            if "error" in found:
                raise UnavailableError(str(found["error"]), code=str(found.get("code", "UNAVAILABLE")))
            yield Item(read(found))
    except TransportError as error:
        raise error.as_error(changes=False) from None
    message = "the output broke off before its end: the site or a proxy ended the connection; read it again"
    raise UnavailableError(message, code="UNAVAILABLE")


def _lines_of(data: Mapping[str, Any]) -> list[LogLine]:
    token = int(data["token"])
    return [
        LogLine.from_json(
            {"token": token, "seq": seq, "at": at_text or None, "stream": stream, "text": text, "partial": partial}
        )
        for seq, stream, at_text, text, partial in data["lines"]
    ]


def _check(head: Reply, kind: str) -> None:
    if head.status != 200 or head.headers.get("content-type", "").partition(";")[0].strip().lower() != kind:
        read_json(head.status, head.headers, head.body)
        raise ConfigError(f"the answer is not {kind}; check the address, and the proxy", code="CONFIG_INVALID")
