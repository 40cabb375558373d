"""LogReader: translates the requests of readers, and the answers to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from toban_log_archiver.adapters.chunk_codec import fill_line
from toban_log_archiver.app.log_reading import LogReading
from toban_log_archiver.app.requests import AttemptLog, ReadPart, SearchPart
from toban_log_archiver.server.request_validation import read_request, search_request
from toban_proto.v1 import logs_pb2 as pb
from toban_proto.v1.logs_pb2_grpc import LogReaderServicer, add_LogReaderServicer_to_server

add_to_server = add_LogReaderServicer_to_server
"""What a server's `add` takes beside a LogReader."""


class LogReader(LogReaderServicer):
    """Called by admin-web and admin-cli. Read and Search raise INVALID_ARGUMENT for requests that contradict themselves."""

    def __init__(self, *, reading: LogReading) -> None:
        self._reading = reading

    async def Read(self, request: pb.ReadLogRequest, _context: Any) -> AsyncIterator[pb.ReadLogResponse]:
        """See LogReading.read."""
        async with aclosing(self._reading.read(read_request(request))) as parts:
            async for part in parts:
                yield _read_part(part)

    async def Describe(self, request: pb.DescribeLogRequest, _context: Any) -> pb.DescribeLogResponse:
        """See LogReading.describe."""
        return pb.DescribeLogResponse(attempts=map(_attempt, await self._reading.describe(request.run_id)))

    async def Search(self, request: pb.SearchLogRequest, _context: Any) -> AsyncIterator[pb.SearchLogResponse]:
        """See LogReading.search."""
        async with aclosing(self._reading.search(search_request(request))) as parts:
            async for part in parts:
                yield _search_part(part)


def _read_part(part: ReadPart) -> pb.ReadLogResponse:
    response = pb.ReadLogResponse(
        token=part.token,
        data=part.data,
        byte_offset=part.byte_offset,
        expired_lines=part.expired_lines,
        at_end=part.at_end,
        read_to=part.read_to,
    )
    for line in part.lines:
        fill_line(response.lines.add(), line)
    return response


def _search_part(part: SearchPart) -> pb.SearchLogResponse:
    run_id, token, seq = part.position
    response = pb.SearchLogResponse(
        position=pb.SearchPosition(run_id=run_id, token=token, seq=seq),
        cut=part.cut,
        runs=part.runs,
        bytes=part.bytes,
        expired_attempts=part.expired_attempts,
    )
    for hit in part.hits:
        fill_line(response.hits.add(run_id=hit.run_id, token=hit.token).line, hit.line)
    return response


def _attempt(one: AttemptLog) -> pb.AttemptLog:
    return pb.AttemptLog(
        token=one.token,
        lines=one.lines,
        raw_bytes=one.raw_bytes,
        last_seq=one.last_seq,
        sealed=one.sealed,
        place=", ".join(one.places),
        expired_lines=one.expired_lines,
    )
