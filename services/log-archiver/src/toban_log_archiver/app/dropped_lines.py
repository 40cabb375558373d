"""Attempts of which a limit dropped lines are complete without them: lines of the stream SYSTEM count the dropped ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import date

from toban_log_archiver.decide.chunk_validation import ChunkInvalid
from toban_log_archiver.decide.dropped_lines import DroppedNumbers, DropRecord, drop_record
from toban_log_archiver.decide.line import JOB_STREAMS
from toban_log_archiver.decide.stored_chunks import TokenPlace
from toban_log_archiver.ports.chunk_codec import ChunkCodec
from toban_log_archiver.store import archive_reads, chunks
from toban_log_archiver.store.archive_reads import TokenFacts
from toban_store.pool import Pool
from toban_store.tx import autocommit

PAGE = 200
HEADS = 1000
MAX_KNOWN = 10_000


def drop_records(codec: ChunkCodec, data: bytes) -> list[DropRecord]:
    """A record for each line of a frame of the stream SYSTEM; none for a frame that cannot be decoded: its readers get the error."""
    try:
        return [drop_record(line) for line in codec.lines(data)]
    except ChunkInvalid:
        return []


class DroppedLines:
    """Remembers what it has counted while an attempt gets no further lines."""

    def __init__(self, *, pool: Pool, codec: ChunkCodec) -> None:
        self._pool = pool
        self._codec = codec
        self._known: dict[tuple[int, int], tuple[TokenFacts, int]] = {}

    async def ready(self, log_day: date, token: TokenFacts) -> TokenFacts:
        """The token, ready when its lines and those that were dropped are all that it had. Raises StoreError."""
        if token.last_seq is None or not token.system_chunks:
            return token
        dropped = await self._dropped(log_day, token)
        return replace(token, ready=token.lines + dropped >= token.last_seq)

    async def _dropped(self, log_day: date, token: TokenFacts) -> int:
        key = (token.run_id, token.token)
        facts, numbers = self._known.get(key, (None, 0))
        if facts is None or (facts.system_chunks, facts.lines) != (token.system_chunks, token.lines):
            numbers = await self._count(log_day, token)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = (token, numbers)
        return numbers

    async def _count(self, log_day: date, token: TokenFacts) -> int:
        counted, after = DroppedNumbers(), 0
        while True:
            async with autocommit(self._pool) as t:
                page = await archive_reads.system_frames(
                    t, log_day, run_id=token.run_id, token=token.token, after=after, size=PAGE
                )
            for _, data in page:
                counted.add(await asyncio.to_thread(drop_records, self._codec, data))
            if len(page) < PAGE:
                break
            after = page[-1][0]
        if counted.has_scattered:
            await self._subtract_stored(counted, TokenPlace(log_day=log_day, run_id=token.run_id, token=token.token))
        return counted.numbers

    async def _subtract_stored(self, counted: DroppedNumbers, place: TokenPlace) -> None:
        """A chunk that was sent twice may be stored once and dropped once."""
        after, more = dict.fromkeys(JOB_STREAMS, 0), True
        while more:
            async with autocommit(self._pool) as t:
                heads = await chunks.heads_after(t, place, after=after, size=HEADS)
            for head in heads:
                counted.stored(head.seq_to)
                after[head.stream] = head.seq_from
            more = len(heads) == HEADS
