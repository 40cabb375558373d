"""LogReader over gRPC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from toban_admin_web.adapters.convert import to_proto
from toban_admin_web.decide.log_lines import FoundLines, LogLine, LogPart, LogPlace
from toban_admin_web.ports.logs import ReadTicket
from toban_domain.dropped_lines import dropped_line_count
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import logs_pb2
from toban_proto.v1.logs_pb2_grpc import LogReaderStub
from toban_transport.replica_client import Fleet

STREAMS = {
    logs_pb2.LOG_STREAM_STDOUT: "stdout",
    logs_pb2.LOG_STREAM_STDERR: "stderr",
    logs_pb2.LOG_STREAM_SYSTEM: "system",
}
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LogClient:
    """Calls the log-archivers; each call has its own timeout."""

    def __init__(self, *, archivers: Fleet) -> None:
        self._archivers = archivers

    def tail(self, run_id: int, ticket: ReadTicket, *, lines: int, seconds: float) -> Sequence[LogPart]:
        """Read, the last lines only."""
        request = _request(run_id, ticket, tail=lines)
        # Stored lines arrive at once, so an archiver without a response in its share of the time is skipped.
        share = seconds / min(2, max(1, len(self._archivers.addresses)))
        return list(self._read(request, share, leave_silent=True))

    def follow(
        self, run_id: int, ticket: ReadTicket, *, token: int, from_seq: int, seconds: float
    ) -> Iterator[LogPart]:
        """Read with follow. It ends without an error after `seconds`."""
        request = _request(run_id, ticket, token=token, from_seq=from_seq, follow=True)
        try:
            yield from self._read(request, seconds)
        except TobanError as error:
            if error.code is not ErrorCode.DEADLINE_EXCEEDED:
                raise

    def whole(self, run_id: int, ticket: ReadTicket, *, seconds: float) -> Iterator[LogPart]:
        """Read."""
        return self._read(_request(run_id, ticket), seconds)

    def select(
        self, run_id: int, ticket: ReadTicket, fields: Mapping[str, Any], *, seconds: float
    ) -> Iterator[LogPart]:
        """Read with any selection."""
        streams = [number for number, name in STREAMS.items() if name in fields["streams"]]
        return self._read(_request(run_id, ticket, **{**fields, "streams": streams}), seconds)

    def search(
        self,
        run_ids: Sequence[int],
        ticket: ReadTicket,
        fields: Mapping[str, Any],
        *,
        after: LogPlace | None,
        seconds: float,
    ) -> FoundLines:
        """Search, one call. What came before a stream broke is kept, and the rest is for the next call."""
        streams = [number for number, name in STREAMS.items() if name in fields["streams"]]
        selection = {**fields, "ticket": asdict(ticket), "run_ids": run_ids, "streams": streams}
        request = to_proto(logs_pb2.SearchLogRequest, selection)
        if after is not None:
            request.after.run_id, request.after.token, request.after.seq = after.run, after.token, after.seq
        lines: list[tuple[int, LogLine]] = []
        place, last, broken = after, logs_pb2.SearchLogResponse(), False
        try:
            for response in self._archivers.stream(
                lambda channel: LogReaderStub(channel).Search, request, timeout=seconds
            ):
                last = response
                lines += [(hit.run_id, _line(hit.token, hit.line)) for hit in response.hits]
                if response.position.run_id:
                    at = response.position
                    place = LogPlace(run=at.run_id, token=at.token, seq=at.seq)
        except TobanError as error:
            if place == after or error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED):
                raise
            broken = True
        return FoundLines(
            lines=lines,
            place=place,
            cut=broken or bool(last.cut),
            runs=last.runs,
            bytes=last.bytes,
            expired_attempts=last.expired_attempts,
        )

    def _read(
        self, request: logs_pb2.ReadLogRequest, seconds: float, *, leave_silent: bool = False
    ) -> Iterator[LogPart]:
        responses = self._archivers.stream(
            lambda channel: LogReaderStub(channel).Read, request, timeout=seconds, leave_silent=leave_silent
        )
        for response in responses:
            lines = tuple(_line(response.token, line) for line in response.lines)
            yield LogPart(token=response.token, lines=lines, at_end=response.at_end)


def _request(run_id: int, ticket: ReadTicket, **fields: Any) -> logs_pb2.ReadLogRequest:
    return to_proto(logs_pb2.ReadLogRequest, {**fields, "ticket": asdict(ticket), "run_id": run_id})


def _line(token: int, line: logs_pb2.LogLine) -> LogLine:
    return LogLine(
        token=token,
        seq=line.seq,
        at=_UNIX_EPOCH + timedelta(microseconds=line.at_unix_nanos // 1000) if line.at_unix_nanos else None,
        stream=STREAMS.get(line.stream, "system"),
        text=line.text.decode("utf-8", "replace"),
        partial=line.partial,
        level=line.level,
        dropped_lines=_dropped(line),
    )


def _dropped(line: logs_pb2.LogLine) -> int:
    """How many dropped lines it counts; lines that earlier releases stored have the number in their text alone."""
    if line.stream != logs_pb2.LOG_STREAM_SYSTEM:
        return 0
    return line.dropped_lines or dropped_line_count(line.text)
