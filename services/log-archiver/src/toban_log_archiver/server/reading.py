"""Reads the stored lines of one attempt in order, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from toban_log_archiver.decide.merge import END, Merge
from toban_log_archiver.server.frames import lines_of
from toban_proto.v1.logs_pb2 import LogLine
from toban_store.logs import chunks
from toban_store.logs.chunks import TokenPlace
from toban_store.pool import Pool
from toban_store.tx import autocommit

PAGE_CHUNKS = 8
"""Compressed chunks that a reader holds; of each stream one is open besides."""


class AttemptReader:
    """A position in one attempt's lines that moves on. No database connection is held while lines are given out."""

    def __init__(self, *, pool: Pool, place: TokenPlace, from_seq: int, streams: Collection[int]) -> None:
        self._pool = pool
        self._place = place
        self._from_seq = max(1, from_seq)
        self._streams = streams
        self._after: dict[int, int] | None = None
        self._merge: Merge[LogLine] = Merge(decode=lines_of, from_seq=self._from_seq)

    @property
    def read_to(self) -> int:
        """The largest sequence number that was given out."""
        return self._merge.last_seq

    async def lines(self) -> AsyncIterator[LogLine]:
        """What is stored now and was not given out yet, in order. Call again for what came later. Raises StoreError."""
        more = True
        while more:
            page = await self._page()
            more = len(page) == PAGE_CHUNKS
            for chunk in page:
                self._merge.add(chunk.stream, chunk.data)
            for line in self._merge.ready(page[-1].seq_from if more else END):
                yield line

    async def _page(self) -> list[chunks.StoredChunk]:
        async with autocommit(self._pool) as t:
            if self._after is None:
                found = await chunks.start_positions(t, self._place, seq=self._from_seq)
                self._after = {stream: found[stream] for stream in self._streams}
            page = await chunks.page(t, self._place, after=self._after, size=PAGE_CHUNKS)
        for chunk in page:
            self._after[chunk.stream] = chunk.seq_from
        return page
