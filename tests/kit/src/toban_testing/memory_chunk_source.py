"""An in-memory ChunkSource; the conformance tests run against it and against the real sources."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from operator import attrgetter

import zstandard

from toban_log_archiver.decide.stored_chunks import (
    ChunkHead,
    NewChunk,
    StoredChunk,
    TimeSpan,
    TokenPlace,
    TokenRow,
    TokenSize,
)
from toban_proto.v1.logs_pb2 import LogLine, LogLines

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = date(2031, 3, 1)
"""The log_day of every attempt here."""


def at(nanos: int) -> datetime:
    """The time of a line, with the precision of chunks."""
    return EPOCH + timedelta(microseconds=nanos // 1000)


def new_chunk(run_id: int, token: int, lines: Sequence[LogLine], *, log_day: date = DAY) -> NewChunk:
    """A chunk of consecutive lines of one stream."""
    nanos = [line.at_unix_nanos for line in lines]
    return NewChunk(
        log_day=log_day,
        run_id=run_id,
        token=token,
        stream=lines[0].stream,
        seq_from=lines[0].seq,
        seq_to=lines[-1].seq,
        line_count=len(lines),
        raw_bytes=sum(len(line.text) + (not line.partial) for line in lines),
        first_at=at(min(nanos)),
        last_at=at(max(nanos)),
        data=zstandard.compress(LogLines(lines=lines).SerializeToString()),
    )


class MemoryChunks:
    """Chunks and seals added by a test."""

    def __init__(self, place: str = "db") -> None:
        self.chunks: list[NewChunk] = []
        self.rows: dict[int, TokenRow] = {}
        self.pages: list[int] = []
        """Number of chunks of each page."""
        self._place = place

    def put(self, chunk: NewChunk) -> None:
        """Adds a chunk, and its attempt if needed."""
        self.chunks.append(chunk)
        self.rows.setdefault(chunk.token, self._row(chunk.run_id, chunk.token, None))

    def seal(self, run_id: int, token: int, last_seq: int, *, seconds: float = 0.0) -> None:
        """Seals an attempt `seconds` ago."""
        self.rows[token] = self._row(run_id, token, last_seq, seconds)

    async def attempts(self, run_id: int) -> Sequence[TokenRow]:
        return [self.rows[token] for token in sorted(self.rows) if self.rows[token].place.run_id == run_id]

    async def page(
        self,
        place: TokenPlace,
        *,
        after: Mapping[int, int],
        size: int,
        span: TimeSpan,
        known: Collection[tuple[int, int]] = (),
    ) -> Sequence[StoredChunk]:
        """As ChunkSource says."""
        found = [
            StoredChunk(stream=c.stream, seq_from=c.seq_from, seq_to=c.seq_to, data=c.data)
            for c in self._after(place, after)
            if (span.since is None or c.last_at >= span.since) and (span.until is None or c.first_at < span.until)
        ][:size]
        self.pages.append(len(found))
        return [chunk for chunk in found if (chunk.stream, chunk.seq_from) not in known]

    async def starts(self, place: TokenPlace, *, seq: int) -> Mapping[int, int]:
        """As ChunkSource says."""
        found: dict[int, int] = {}
        for c in self._of(place):
            if c.seq_from <= seq:
                found[c.stream] = max(found.get(c.stream, 0), c.seq_from)
        return found

    async def heads(self, place: TokenPlace, *, streams: Sequence[int], before: int, size: int) -> Sequence[ChunkHead]:
        """As ChunkSource says."""
        found = [c for c in self._of(place) if c.stream in streams and c.seq_from < before]
        return [head(c) for c in sorted(found, key=lambda c: (-c.seq_from, c.stream))[:size]]

    async def heads_after(self, place: TokenPlace, *, after: Mapping[int, int], size: int) -> Sequence[ChunkHead]:
        """As ChunkSource says."""
        return [head(c) for c in self._after(place, after)[:size]]

    async def sizes(self, run_id: int) -> Mapping[int, TokenSize]:
        """As ChunkSource says."""
        found: dict[int, TokenSize] = {}
        for c in self.chunks:
            if c.run_id == run_id:
                size = TokenSize(lines=c.line_count, raw_bytes=c.raw_bytes, last_seq=c.seq_to)
                found[c.token] = size if c.token not in found else found[c.token] + size
        return found

    async def places(self, run_id: int) -> Mapping[int, Sequence[str]]:
        """As ChunkSource says."""
        return {token: [self._place] for token in await self.sizes(run_id)}

    async def touched(self, run_ids: Sequence[int], *, streams: Sequence[int], span: TimeSpan) -> Sequence[TokenPlace]:
        """As ChunkSource says."""
        found = {
            TokenPlace(log_day=DAY, run_id=c.run_id, token=c.token)
            for c in self.chunks
            if c.run_id in run_ids
            and c.stream in streams
            and (span.since is None or c.last_at >= span.since)
            and (span.until is None or c.first_at < span.until)
        }
        return sorted(found, key=lambda place: (place.run_id, place.token))

    async def expired(self, run_ids: Sequence[int]) -> Mapping[tuple[int, int], int]:
        """As ChunkSource says: nothing."""
        del run_ids
        return {}

    def _of(self, place: TokenPlace) -> list[NewChunk]:
        """As ChunkSource says."""
        return [c for c in self.chunks if (c.run_id, c.token) == (place.run_id, place.token)]

    def _after(self, place: TokenPlace, after: Mapping[int, int]) -> list[NewChunk]:
        found = [c for c in self._of(place) if c.stream in after and c.seq_from > after[c.stream]]
        return sorted(found, key=attrgetter("seq_from", "stream"))

    @staticmethod
    def _row(run_id: int, token: int, last_seq: int | None, seconds: float = 0.0) -> TokenRow:
        place = TokenPlace(log_day=DAY, run_id=run_id, token=token)
        return TokenRow(place=place, last_seq=last_seq, sealed_seconds=None if last_seq is None else seconds)


def head(c: NewChunk) -> ChunkHead:
    """A chunk without its lines."""
    return ChunkHead(
        stream=c.stream, seq_from=c.seq_from, seq_to=c.seq_to, line_count=c.line_count, raw_bytes=c.raw_bytes
    )
