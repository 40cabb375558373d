"""The output of a run over REST: what is stored, and what arrives, as the messages that log-archivers send."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any

from toban.client.flow import RetryBudget
from toban.client.streams import server_events, stored_lines
from toban_cli import report
from toban_cli.log_printer import STREAM_NAMES
from toban_cli.ports import StreamEndedError
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import TERMINAL

if TYPE_CHECKING:
    from toban_cli.rest.connection import SiteClient

# Between two reads of what a stream has announced, seconds: the site allows 20 requests a second.
PAUSE_SECONDS = 0.1
_LINES = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS: dict[str, Any] = {name: number for number, name in STREAM_NAMES.items()}
_TEXTS = ("from_seq", "to_seq", "head", "tail", "level", "grep")


class SiteSource:
    """A run at the site, which has one stream for its lines and their end."""

    def __init__(self, client: SiteClient, run_id: int) -> None:
        client.wait_for_site()
        self._client = client
        self._run_id = run_id

    def read(self) -> Any:
        from toban_proto.v1.coordinator_pb2 import GetRunRequest

        return self._client.call("JobReader.GetRun", GetRunRequest(id=self._run_id))

    def has_ended(self) -> bool:
        return self.read().state in TERMINAL

    def await_end(self) -> None:
        events = server_events(f"/runs/{self._run_id}/stream", (), RetryBudget(seconds=0.0))
        for event in self._client.connection.iterate(events):
            if event.name == "end":
                return

    def output(self, request: Any, on_outage: Callable[[str], None]) -> Iterator[Any]:
        return follow_lines(self._client, request, on_outage)

    def close(self) -> None:
        """Nothing: the client has the connections."""


def read_lines(client: SiteClient, request: Any) -> Iterator[Any]:
    """ReadLogResponses for a ReadLogRequest. With follow until the run has ended; a stream that ends before raises DEADLINE_EXCEEDED.

    Raises UNAVAILABLE for what broke off before its end.
    """
    if request.follow or request.after.token:
        # What has begun goes on after a restart of the site.
        client.wait_for_site()
    if request.follow:
        yield from follow_lines(client, request, lambda _: None, waits=True)
        return
    places = list(_places(client, request))
    if request.tail and len(places) > 1:
        yield from _last_of_all(client, request, places)
        return
    left = request.head
    for token, from_seq in places:
        for answer in _read(client, request, token, from_seq, left):
            yield answer
            left -= len(answer.lines) if request.head else 0
        if request.head and left <= 0:
            return


def follow_lines(
    client: SiteClient, request: Any, on_outage: Callable[[str], None], *, waits: bool = False
) -> Iterator[Any]:
    """The lines from `after` on, as they arrive, until the output is complete; `on_outage` gets the reason while the site cannot read them.

    The stream of the site names new lines, without terminal codes; they are then read as they are, by the filters of the request.
    """
    place = (request.after.token, request.after.seq)
    if request.tail and place == (0, 0):
        for answer in _read(client, request, 0, 0, 0):
            yield answer
            place = _end_of(answer)
    query = (("after", f"{place[0]}:{place[1]}"),) if place > (0, 0) else ()
    budget = client.connection.budget() if waits else RetryBudget(seconds=0.0)
    events = server_events(f"/runs/{request.run_id}/logs/stream", query, budget)
    for event in client.connection.iterate(events):
        if event.name == "end":
            if event.data.get("complete") is False:
                report.note(
                    f"warning: the end of the output of run {request.run_id} has not arrived; its executor may be unreachable. "
                    f"`toban run logs {request.run_id}` shows it later"
                )
            return
        if event.name == "unavailable":
            on_outage(str(event.data.get("message", "")))
            continue
        named = (int(event.data["token"]), int(event.data["lines"][-1][0]))
        if request.tokens and named[0] not in request.tokens:
            if named[0] > max(request.tokens):
                return
            continue
        if named <= place:
            continue
        begin = place[1] + 1 if named[0] == place[0] else request.from_seq
        for answer in _read(client, request, named[0], begin, 0, tail=0):
            yield answer
            place = max(place, _end_of(answer))
        if named > place:
            place = named
            yield _response(token=named[0], read_to=named[1])
        Event().wait(PAUSE_SECONDS)
    raise StreamEndedError(ErrorCode.DEADLINE_EXCEEDED, "the stream of the output ended before the run did")


def _places(client: SiteClient, request: Any) -> Iterator[tuple[int, int]]:
    """Attempts to read, and from which line each: (0, n) means all of them."""
    wanted = list(request.tokens) or ([request.token] if request.token else [])
    if not request.after.token:
        yield from ((token, request.from_seq) for token in wanted or [0])
        return
    yield request.after.token, request.after.seq + 1
    if not wanted:
        from toban_proto.v1.coordinator_pb2 import GetRunRequest

        wanted = [item.token for item in client.call("JobReader.GetRun", GetRunRequest(id=request.run_id)).attempts]
    yield from ((token, 0) for token in sorted(wanted) if token > request.after.token)


def _last_of_all(client: SiteClient, request: Any, places: list[tuple[int, int]]) -> Iterator[Any]:
    """The last lines of several attempts together."""
    found = [answer for token, from_seq in places for answer in _read(client, request, token, from_seq, 0)]
    over = sum(len(answer.lines) for answer in found) - request.tail
    for answer in found:
        dropped = min(max(over, 0), len(answer.lines))
        over -= dropped
        del answer.lines[:dropped]
        yield answer


def _read(
    client: SiteClient, request: Any, token: int, from_seq: int, head: int, tail: int | None = None
) -> Iterator[Any]:
    query = _query(request) | {"from_seq": from_seq, "head": head, "token": token}
    if tail is not None:
        query["tail"] = tail
    pairs = [(name, str(value)) for name, value in query.items() if value]
    pairs += [("stream", STREAM_NAMES[stream]) for stream in request.streams]
    pairs += [("regex", "true")] if request.regex else []
    lines = stored_lines(request.run_id, tuple(pairs), client.connection.budget(), _parse)
    answer = _response()
    try:
        for of, line in client.connection.iterate(lines):
            if answer.lines and (of != answer.token or len(answer.lines) >= _LINES):
                yield answer
                answer = _response()
            answer.token = of
            answer.lines.append(line)
    except TobanError:
        # What came before it counts.
        if answer.lines:
            yield answer
        raise
    if answer.lines:
        yield answer


def _query(request: Any) -> dict[str, Any]:
    found = {name: getattr(request, name) for name in _TEXTS}
    for name in ("since", "until"):
        if request.HasField(name):
            found[name] = getattr(request, name).ToJsonString()
    return found


def _parse(found: Mapping[str, Any]) -> tuple[int, Any]:
    """Token and LogLine of a line of the answer."""
    from toban_proto.v1.logs_pb2 import LogLine

    at = (datetime.fromisoformat(found["at"]) - _EPOCH) // timedelta(microseconds=1) * 1000 if found["at"] else 0
    line = LogLine(
        seq=found["seq"],
        at_unix_nanos=at,
        stream=_NUMBERS.get(found["stream"], 3),
        text=found["text"].encode(),
        partial=found["partial"],
        level=found.get("level") or "",
    )
    return int(found["token"]), line


def _end_of(answer: Any) -> tuple[int, int]:
    return answer.token, answer.lines[-1].seq


def _response(**fields: Any) -> Any:
    from toban_proto.v1.logs_pb2 import ReadLogResponse

    return ReadLogResponse(**fields)
