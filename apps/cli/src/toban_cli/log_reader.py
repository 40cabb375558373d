"""Reads the output of a run to its end, over replicas that come and go, and describes where it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toban_cli.formatting import count, size
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.log_printer import LinePrinter
    from toban_cli.ports import Client

DATABASE = "db"
# Timeout of what is shown beside a run, seconds.
PLACE_SECONDS = 2.0
# No attempt has it.
_NO_TOKEN = (1 << 63) - 1


def read_all(client: Client, request: Any, printer: LinePrinter) -> int:
    """Prints the requested lines; returns their number. A stream that breaks is continued after its last line, while lines arrive.

    Raises TobanError.
    """
    count = 0
    while True:
        before = count
        # Without a ticket there is no stream yet that could have reached its end.
        answers = client.stream("LogReader.Read", request)
        try:
            for answer in answers:
                printer.show(answer)
                count += len(answer.lines)
                _continue_after(request, answer)
            return count
        except TobanError as error:
            # A stream ends at its deadline, and with its server.
            ended = error.code is ErrorCode.DEADLINE_EXCEEDED and (request.follow or count > before)
            if not ended and not (error.code is ErrorCode.UNAVAILABLE and count > before):
                raise


def check(client: Client, request: Any) -> None:
    """Raises INVALID_ARGUMENT for a request that log-archivers refuse; reads nothing."""
    probe = type(request)()
    probe.CopyFrom(request)
    probe.follow = False
    probe.token = 0
    probe.tokens[:] = [_NO_TOKEN]
    list(client.stream("LogReader.Read", probe))


def _continue_after(request: Any, answer: Any) -> None:
    position = position_after(answer)
    if not answer.lines and position <= (request.after.token, request.after.seq):
        return
    request.tail = 0
    if request.head:
        # At its end the stream ends too; 0 would mean all.
        request.head = max(1, request.head - len(answer.lines))
    # Both exclude each other.
    request.from_seq = 0
    request.after.token, request.after.seq = position


def position_after(answer: Any) -> tuple[int, int]:
    """Token and number of the last line that was read for this ReadLogResponse, shown or not; (0, 0) when it does not say."""
    last = max(answer.read_to, answer.lines[-1].seq if answer.lines else 0)
    return (answer.token, last) if last else (0, 0)


def stored_log(client: Client, run: Any) -> dict[str, Any] | None:
    """Where the output of a run is and how much; None when no log-archiver responds quickly, and for a run that never started."""
    from toban_proto.v1.logs_pb2 import DescribeLogRequest

    if not run.token:
        return None
    try:
        attempts = client.call("LogReader.Describe", DescribeLogRequest(run_id=run.id), timeout=PLACE_SECONDS).attempts
    except TobanError:
        return None
    return {
        "lines": sum(item.lines for item in attempts),
        "bytes": sum(item.raw_bytes for item in attempts),
        "expired_lines": sum(item.expired_lines for item in attempts),
        "complete": all(item.sealed for item in attempts),
        "places": sorted({place for item in attempts for place in item.place.split(", ") if place}),
    }


def format_stored_log(log_ref: str, stored: Mapping[str, Any] | None) -> str:
    """The same as text, after the log reference of the run."""
    if stored is None:
        return log_ref
    archived = [place for place in stored["places"] if place != DATABASE]
    parts = [f"{count(stored['lines'], 'line')}, {size(stored['bytes'])}"]
    if DATABASE in stored["places"]:
        parts.append("in the database")
    parts += [f"in {archived[0]}" if len(archived) == 1 else f"in {len(archived)} archived objects"] if archived else []
    parts += [f"{count(stored['expired_lines'], 'line')} expired"] if stored["expired_lines"] else []
    return f"{log_ref}: {', '.join(parts)}"


def format_log_places(attempts: Sequence[Any]) -> str:
    """Where the lines of these AttemptLogs are, for people; empty when there is none."""
    places = {place for item in attempts if item.lines for place in item.place.split(", ") if place}
    archived = sorted(places - {DATABASE})
    if not places:
        return ""
    if not archived:
        return "from the database"
    where = archived[0] if len(archived) == 1 else f"{len(archived)} objects"
    return f"from both, the database and the archive ({where})" if DATABASE in places else f"from the archive ({where})"
