"""LogReader over gRPC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from toban_admin_web.decide.view_models import LogLine, LogPart
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

    def tail(self, run_id: int, *, lines: int, seconds: float) -> Sequence[LogPart]:
        """Read, the last lines only."""
        request = logs_pb2.ReadLogRequest(run_id=run_id, tail=lines)
        # Stored lines arrive at once, so an archiver without a response in its share of the time is skipped.
        share = seconds / min(2, max(1, len(self._archivers.addresses)))
        return list(self._read(request, share, leave_silent=True))

    def follow(self, run_id: int, *, token: int, from_seq: int, seconds: float) -> Iterator[LogPart]:
        """Read with follow. It ends without an error after `seconds`."""
        request = logs_pb2.ReadLogRequest(run_id=run_id, token=token, from_seq=from_seq, follow=True)
        try:
            yield from self._read(request, seconds)
        except TobanError as error:
            if error.code is not ErrorCode.DEADLINE_EXCEEDED:
                raise

    def whole(self, run_id: int, *, seconds: float) -> Iterator[LogPart]:
        """Read."""
        return self._read(logs_pb2.ReadLogRequest(run_id=run_id), seconds)

    def _read(
        self, request: logs_pb2.ReadLogRequest, seconds: float, *, leave_silent: bool = False
    ) -> Iterator[LogPart]:
        responses = self._archivers.stream(
            lambda channel: LogReaderStub(channel).Read, request, timeout=seconds, leave_silent=leave_silent
        )
        for response in responses:
            lines = tuple(_line(response.token, line) for line in response.lines)
            yield LogPart(token=response.token, lines=lines, at_end=response.at_end)


def _line(token: int, line: logs_pb2.LogLine) -> LogLine:
    return LogLine(
        token=token,
        seq=line.seq,
        at=_UNIX_EPOCH + timedelta(microseconds=line.at_unix_nanos // 1000) if line.at_unix_nanos else None,
        stream=STREAMS.get(line.stream, "system"),
        text=line.text.decode("utf-8", "replace"),
        partial=line.partial,
    )
