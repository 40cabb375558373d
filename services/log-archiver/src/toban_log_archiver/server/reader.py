"""LogReader: the lines of a run in order, from any position, live if wanted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.decide import tail
from toban_log_archiver.decide.chunk import STREAMS
from toban_log_archiver.server.followers import Followers
from toban_log_archiver.server.reading import AttemptReader
from toban_observability import metrics
from toban_proto.v1.logs_pb2 import (
    AttemptLog,
    DescribeLogRequest,
    DescribeLogResponse,
    LogLine,
    ReadLogRequest,
    ReadLogResponse,
)
from toban_proto.v1.logs_pb2_grpc import LogReaderServicer, add_LogReaderServicer_to_server
from toban_store.logs import chunks, tokens
from toban_store.logs.tokens import TokenRow
from toban_store.pool import Pool
from toban_store.tx import autocommit

add_to_server = add_LogReaderServicer_to_server
"""What a server's `add` takes beside a LogReader."""

ANSWER_LINES = 1000
ANSWER_BYTES = 256 * 1024
# A follower looks by itself this often, should a notification get lost, seconds.
POLL_SECONDS = 2.0
# Lines that come after the seal through another archiver are waited for this long, seconds.
SEAL_GRACE_SECONDS = 5.0

_lines = metrics.counter("toban_log_lines_read_total", "Lines sent to readers.")


class LogReader(LogReaderServicer):
    """Called by admin-web and admin-cli. It knows attempts that have sent something; of a run it knows nothing else."""

    def __init__(self, *, pool: Pool, followers: Followers) -> None:
        self._pool = pool
        self._followers = followers

    async def Read(self, request: ReadLogRequest, _context: Any) -> AsyncIterator[ReadLogResponse]:
        """Lines in order of attempts, then of sequence numbers. A run without lines gives none; with follow they are waited for."""
        reading = _Reading(self._pool, _checked(request))
        with self._followers.follow(request.run_id) as event:
            while True:
                event.clear()
                async for answer in reading.available():
                    yield answer
                if reading.at_end:
                    yield ReadLogResponse(token=reading.token, at_end=True)
                if reading.at_end or not request.follow:
                    return
                if self._followers.stopping:
                    raise TobanError(ErrorCode.UNAVAILABLE, "this log-archiver stops: follow through another one")
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await event.wait()

    async def Describe(self, request: DescribeLogRequest, _context: Any) -> DescribeLogResponse:
        """Every attempt that has sent something, with what is stored of it."""
        async with autocommit(self._pool) as t:
            rows = await tokens.of_run(t, request.run_id)
            sizes = await chunks.sizes(t, request.run_id)
        return DescribeLogResponse(attempts=[_described(row, sizes.get(row.place.token)) for row in rows])


class _Reading:
    """One Read call: a position in each attempt."""

    def __init__(self, pool: Pool, request: ReadLogRequest) -> None:
        self._pool = pool
        self._request = request
        self._streams: Sequence[int] = sorted(set(request.streams) or STREAMS)
        self._readers: dict[int, AttemptReader] = {}
        self._tail_left = request.tail
        self.token = 0
        """The attempt that was read last."""
        self.at_end = False

    async def available(self) -> AsyncIterator[ReadLogResponse]:
        """Everything that is stored now and was not sent yet; sets `at_end`."""
        async with autocommit(self._pool) as t:
            rows = [row for row in await tokens.of_run(t, self._request.run_id) if self._wanted(row)]
        if self._tail_left and rows:
            lines = self._tail(rows)
            self._tail_left = 0
        else:
            lines = self._rest(rows)
        async for answer in _packed(lines):
            self.token = answer.token
            yield answer
        self.at_end = self._request.follow and bool(rows) and self._ended(rows)

    def _wanted(self, row: TokenRow) -> bool:
        return self._request.token in (0, row.place.token)

    def _ended(self, rows: list[TokenRow]) -> bool:
        """The last attempt is sealed and read; earlier ones were followed by it, so nothing of theirs is waited for."""
        last = rows[-1]
        reader = self._readers.get(last.place.token)
        whole = len(self._streams) == len(STREAMS)
        return tail.is_end(
            last_seq=last.last_seq,
            sealed_seconds=last.sealed_seconds,
            read_to=reader.read_to if reader else 0,
            # Some streams only: the last line may be of another one.
            grace_seconds=SEAL_GRACE_SECONDS if whole else 0.0,
        )

    async def _rest(self, rows: list[TokenRow]) -> AsyncIterator[tuple[int, LogLine]]:
        for row in rows:
            async for line in self._reader(row, self._request.from_seq).lines():
                yield row.place.token, line

    async def _tail(self, rows: list[TokenRow]) -> AsyncIterator[tuple[int, LogLine]]:
        """The last lines over all wanted attempts: read from a place safely before them, and only the end is kept."""
        kept: deque[tuple[int, LogLine]] = deque(maxlen=self._request.tail)
        size = 0
        for row, start in await self._tail_places(rows):
            async for line in self._reader(row, max(start, self._request.from_seq)).lines():
                if len(kept) == kept.maxlen:
                    size -= len(kept[0][1].text)
                kept.append((row.place.token, line))
                size += len(line.text)
                while size > tail.MAX_TAIL_BYTES:
                    size -= len(kept.popleft()[1].text)
        for one in kept:
            yield one

    async def _tail_places(self, rows: list[TokenRow]) -> list[tuple[TokenRow, int]]:
        count = self._request.tail
        async with autocommit(self._pool) as t:
            sizes = await chunks.sizes(t, self._request.run_id, streams=self._streams)
            lines = {row.place.token: sizes[row.place.token].lines for row in rows if row.place.token in sizes}
            first, within = tail.first_token(lines, count)
            places = []
            for row in rows:
                if row.place.token == first:
                    heads = await chunks.last_heads(t, row.place, streams=self._streams, size=within)
                    places.append((row, tail.start_seq(heads, within)))
                elif row.place.token > first:
                    places.append((row, 1))
                else:
                    # What comes late to an attempt before the tail is shown; what it has now is not.
                    places.append((row, (sizes[row.place.token].last_seq if row.place.token in sizes else 0) + 1))
        return places

    def _reader(self, row: TokenRow, from_seq: int) -> AttemptReader:
        token = row.place.token
        if token not in self._readers:
            self._readers[token] = AttemptReader(
                pool=self._pool, place=row.place, from_seq=from_seq, streams=self._streams
            )
        return self._readers[token]


async def _packed(lines: AsyncIterator[tuple[int, LogLine]]) -> AsyncIterator[ReadLogResponse]:
    """Lines in answers of bounded size, each of one attempt."""
    token, batch, size = 0, list[LogLine](), 0
    async for line_token, line in lines:
        if batch and (line_token != token or len(batch) >= ANSWER_LINES or size + len(line.text) > ANSWER_BYTES):
            _lines.inc(len(batch))
            yield ReadLogResponse(token=token, lines=batch)
            batch, size = [], 0
        token = line_token
        batch.append(line)
        size += len(line.text)
    if batch:
        _lines.inc(len(batch))
        yield ReadLogResponse(token=token, lines=batch)


def _checked(request: ReadLogRequest) -> ReadLogRequest:
    if request.run_id <= 0:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"run_id {request.run_id} is not a run: name a positive one")
    if not 0 <= request.tail <= tail.MAX_TAIL_LINES:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"tail {request.tail} is not within 0-{tail.MAX_TAIL_LINES}: read from the start for more",
        )
    unknown = set(request.streams) - STREAMS
    if unknown:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"unknown streams {sorted(unknown)}: 1 stdout, 2 stderr, 3 system")
    return request


def _described(row: TokenRow, size: chunks.TokenSize | None) -> AttemptLog:
    return AttemptLog(
        token=row.place.token,
        lines=size.lines if size else 0,
        raw_bytes=size.raw_bytes if size else 0,
        last_seq=row.last_seq if row.last_seq is not None else (size.last_seq if size else 0),
        sealed=row.sealed_seconds is not None,
        place="db",
    )
