"""LogReader over gRPC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from toban_admin_web.decide.records import LogLine, LogPart
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import logs_pb2
from toban_proto.v1.logs_pb2_grpc import LogReaderStub
from toban_transport.replica_client import Fleet

STREAMS = {
    logs_pb2.LOG_STREAM_STDOUT: "stdout",
    logs_pb2.LOG_STREAM_STDERR: "stderr",
    logs_pb2.LOG_STREAM_SYSTEM: "system",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LogClient:
    """Asks the log-archivers; each call has its own seconds."""

    def __init__(self, *, fleet: Fleet) -> None:
        self._fleet = fleet

    def tail(self, run_id: int, *, lines: int, seconds: float) -> Sequence[LogPart]:
        """Read, the end only."""
        request = logs_pb2.ReadLogRequest(run_id=run_id, tail=lines)
        # What is stored comes at once: one that is silent for its share of the time is left for the next.
        share = seconds / min(2, max(1, len(self._fleet.addresses)))
        return list(self._read(request, share, leave_silent=True))

    def follow(self, run_id: int, *, token: int, from_seq: int, seconds: float) -> Iterator[LogPart]:
        """Read with follow. The end of the seconds is the end of the lines, not an error."""
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
        answers = self._fleet.stream(
            lambda channel: LogReaderStub(channel).Read, request, timeout=seconds, leave_silent=leave_silent
        )
        for answer in answers:
            lines = tuple(_line(answer.token, line) for line in answer.lines)
            yield LogPart(token=answer.token, lines=lines, at_end=answer.at_end)


def _line(token: int, line: logs_pb2.LogLine) -> LogLine:
    return LogLine(
        token=token,
        seq=line.seq,
        at=_EPOCH + timedelta(microseconds=line.at_unix_nanos // 1000) if line.at_unix_nanos else None,
        stream=STREAMS.get(line.stream, "system"),
        text=line.text.decode("utf-8", "replace"),
        partial=line.partial,
    )
