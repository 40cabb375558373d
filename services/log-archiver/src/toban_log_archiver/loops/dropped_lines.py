"""Attempts of which a limit left lines out are complete without them: the executor's own lines say how many they were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

from toban_log_archiver.decide.dropped_lines import LeftOut, Mark
from toban_log_archiver.store import archive_reads, chunks
from toban_log_archiver.store.archive_reads import TokenFacts
from toban_log_archiver.store.chunks import TokenPlace
from toban_store.pool import Pool
from toban_store.tx import autocommit

PAGE = 200
HEADS = 1000
JOB_STREAMS = (1, 2)
MAX_KNOWN = 10_000


CountMarks = Callable[[bytes], Sequence[Mark]]
"""What each line of a frame stands for."""


class LeftOutLines:
    """Remembers what it has counted while an attempt gets no further lines."""

    def __init__(self, *, pool: Pool, count_marks: CountMarks) -> None:
        self._pool = pool
        self._count_marks = count_marks
        self._known: dict[tuple[int, int], tuple[TokenFacts, int]] = {}

    async def ready(self, log_day: date, token: TokenFacts) -> TokenFacts:
        """The token, ready when its lines and those that were left out are all that it had. Raises StoreError."""
        if token.last_seq is None or not token.mark_chunks:
            return token
        left_out = await self._left_out(log_day, token)
        return replace(token, ready=token.lines + left_out >= token.last_seq)

    async def _left_out(self, log_day: date, token: TokenFacts) -> int:
        key = (token.run_id, token.token)
        facts, numbers = self._known.get(key, (None, 0))
        if facts is None or (facts.mark_chunks, facts.lines) != (token.mark_chunks, token.lines):
            numbers = await self._count(log_day, token)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = (token, numbers)
        return numbers

    async def _count(self, log_day: date, token: TokenFacts) -> int:
        counted, after = LeftOut(), 0
        while True:
            async with autocommit(self._pool) as t:
                page = await archive_reads.marks(
                    t, log_day, run_id=token.run_id, token=token.token, after=after, size=PAGE
                )
            for _, data in page:
                counted.add(await asyncio.to_thread(self._count_marks, data))
            if len(page) < PAGE:
                break
            after = page[-1][0]
        if counted.has_scattered:
            await self._take_stored(counted, TokenPlace(log_day=log_day, run_id=token.run_id, token=token.token))
        return counted.numbers

    async def _take_stored(self, counted: LeftOut, place: TokenPlace) -> None:
        """A chunk that was sent twice may be stored once and left out once."""
        after, more = dict.fromkeys(JOB_STREAMS, 0), True
        while more:
            async with autocommit(self._pool) as t:
                heads = await chunks.heads_after(t, place, after=after, size=HEADS)
            for head in heads:
                counted.stored(head.seq_to)
                after[head.stream] = head.seq_from
            more = len(heads) == HEADS
