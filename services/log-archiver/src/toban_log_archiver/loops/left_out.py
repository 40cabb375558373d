"""Attempts of which a limit left lines out are complete without them: the executor's own lines say how many they were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

from toban_log_archiver.decide.left_out import LeftOut
from toban_store.logs import archive_reads
from toban_store.logs.archive_reads import TokenFacts
from toban_store.pool import Pool
from toban_store.tx import autocommit

PAGE = 200
MAX_KNOWN = 10_000


CountMarks = Callable[[bytes], Sequence[tuple[int, int]]]
"""For each line of a frame its number, and how many lines it says were left out (0 = none)."""


class LeftOutLines:
    """Remembers what it has counted while an attempt gets no further lines of that kind."""

    def __init__(self, *, pool: Pool, count_marks: CountMarks) -> None:
        self._pool = pool
        self._count_marks = count_marks
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    async def ready(self, log_day: date, token: TokenFacts) -> TokenFacts:
        """The token, ready when its lines and those that were left out are all that it had. Raises StoreError."""
        if token.last_seq is None or not token.mark_chunks:
            return token
        left_out = await self._left_out(log_day, token)
        return replace(token, ready=token.lines + left_out >= token.last_seq)

    async def _left_out(self, log_day: date, token: TokenFacts) -> int:
        key = (token.run_id, token.token)
        chunks, numbers = self._known.get(key, (0, 0))
        if chunks != token.mark_chunks:
            numbers = await self._count(log_day, token)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = (token.mark_chunks, numbers)
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
                return counted.numbers
            after = page[-1][0]
