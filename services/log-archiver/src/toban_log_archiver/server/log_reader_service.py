"""LogReader: the lines of a run in order, from any position, live if wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.ports.chunk_source import ChunkSource
from toban_log_archiver.server import attempt_selection, request_validation
from toban_log_archiver.server.followers import Followers
from toban_log_archiver.server.raw_reader import RawReading
from toban_log_archiver.server.response_batching import worth_sending
from toban_log_archiver.server.run_reader import RunReading
from toban_log_archiver.server.search import Searching
from toban_log_archiver.store.chunks import TokenSize
from toban_log_archiver.store.log_attempts import TokenRow
from toban_proto.v1.logs_pb2 import (
    AttemptLog,
    DescribeLogRequest,
    DescribeLogResponse,
    ReadLogRequest,
    ReadLogResponse,
    SearchLogRequest,
    SearchLogResponse,
)
from toban_proto.v1.logs_pb2_grpc import LogReaderServicer, add_LogReaderServicer_to_server
from toban_runtime.clock import Clock

add_to_server = add_LogReaderServicer_to_server
"""What a server's `add` takes beside a LogReader."""

# A follower looks by itself this often, should a notification get lost, seconds.
POLL_SECONDS = 2.0


class LogReader(LogReaderServicer):
    """Called by admin-web and admin-cli. It knows attempts that have sent something; of a run it knows nothing else."""

    def __init__(self, *, source: ChunkSource, followers: Followers, clock: Clock) -> None:
        self._source = source
        self._followers = followers
        self._clock = clock

    async def Read(self, request: ReadLogRequest, _context: Any) -> AsyncIterator[ReadLogResponse]:
        """Lines in order of attempts, then of sequence numbers. A run without lines gives none; with follow they are waited for.

        Raises INVALID_ARGUMENT for what cannot be asked, UNAVAILABLE when a follower has to go on elsewhere or a source does not answer.
        """
        reading = self._reading(request_validation.checked(request))
        told: dict[int, int] = {}
        async for answer in self._expired(request, told):
            yield answer
        with self._followers.follow(request.run_id) as event:
            while True:
                event.clear()
                async for answer in worth_sending(reading.available(), self._clock):
                    yield answer
                if reading.at_end or reading.done or not request.follow:
                    break
                if self._followers.stopping:
                    raise TobanError(ErrorCode.UNAVAILABLE, "this log-archiver stops: follow through another one")
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await event.wait()
        # Lines that expired while they were read were passed over.
        async for answer in self._expired(request, told):
            yield answer
        if reading.at_end:
            yield ReadLogResponse(token=reading.token, at_end=True)

    async def Describe(self, request: DescribeLogRequest, _context: Any) -> DescribeLogResponse:
        """Every attempt that has sent something, with what is stored of it and where."""
        rows = await self._source.attempts(request.run_id)
        sizes = await self._source.sizes(request.run_id)
        places = await self._source.places(request.run_id)
        expired = await self._source.expired([request.run_id])
        return DescribeLogResponse(
            attempts=[
                _described(
                    row,
                    sizes.get(row.place.token),
                    places.get(row.place.token, ()),
                    expired.get((request.run_id, row.place.token), 0),
                )
                for row in rows
            ]
        )

    async def Search(self, request: SearchLogRequest, _context: Any) -> AsyncIterator[SearchLogResponse]:
        """Lines of many runs, in the order of run_ids; within a run as Read gives them. Bounded work: the last answer says whether it was cut.

        Raises INVALID_ARGUMENT for what cannot be asked, UNAVAILABLE when a source does not answer.
        """
        request_validation.checked_search(request)
        searching = Searching(
            source=self._source, clock=self._clock, request=request, selection=request_validation.selection_of(request)
        )
        async for answer in searching.answers():
            yield answer

    async def _expired(self, request: ReadLogRequest, told: dict[int, int]) -> AsyncIterator[ReadLogResponse]:
        """What of the wanted attempts is gone, as far as it was not `told` (token → lines), which grows."""
        gone = await self._source.expired([request.run_id])
        if gone:
            for row in await attempt_selection.wanted(self._source, request):
                token = row.place.token
                lines = gone.get((request.run_id, token), 0)
                if lines > told.get(token, 0):
                    told[token] = lines
                    yield ReadLogResponse(token=token, expired_lines=lines)

    def _reading(self, request: ReadLogRequest) -> RunReading | RawReading:
        kind = RawReading if request.raw else RunReading
        return kind(
            source=self._source, clock=self._clock, request=request, selection=request_validation.selection_of(request)
        )


def _described(row: TokenRow, size: TokenSize | None, places: Sequence[str], expired: int) -> AttemptLog:
    return AttemptLog(
        token=row.place.token,
        lines=size.lines if size else 0,
        raw_bytes=size.raw_bytes if size else 0,
        last_seq=row.last_seq if row.last_seq is not None else (size.last_seq if size else 0),
        sealed=row.sealed_seconds is not None,
        place=", ".join(places),
        expired_lines=expired,
    )
