"""What becomes of new output when the output in the database has used up its budget: it is left out, and a line counts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

import zstandard

from toban_domain.dropped_lines import DATABASE_LIMIT, dropped_lines_text
from toban_log_archiver.store import chunks
from toban_log_archiver.store.chunks import NewChunk
from toban_observability import metrics
from toban_proto.v1.logs_pb2 import LOG_STREAM_SYSTEM, LogLine, LogLines
from toban_store.pool import Pool
from toban_store.tx import autocommit

# A chunk of this size takes no more room than the line that would stand for it.
SMALL_BYTES = 512
_KIB = 1024

_lines = metrics.counter(
    "toban_log_budget_left_out_lines_total", "Output lines dropped because log_budget_db_gb was used up."
)
_bytes = metrics.counter(
    "toban_log_budget_left_out_bytes_total", "Output bytes dropped because log_budget_db_gb was used up."
)


Held = Callable[[Sequence[NewChunk]], Awaitable[Collection[tuple[int, int, int, int]]]]
"""Those places of some chunks where one is stored, in the database or the archive."""


def held_in(pool: Pool) -> Held:
    """As this database knows it. Raises StoreError."""

    async def held(asked: Sequence[NewChunk]) -> Collection[tuple[int, int, int, int]]:
        async with autocommit(pool) as t:
            return await chunks.held(t, asked)

    return held


class Budget:
    """`is_full` says whether the budget is used up now, `words` what it is."""

    def __init__(self, *, is_full: Callable[[], bool], words: Callable[[], str], held: Held) -> None:
        self._is_full = is_full
        self._words = words
        self._held = held

    async def take(self, sent: Sequence[NewChunk]) -> list[NewChunk]:
        """What is stored of `sent`. One that is stored already, and comes again since nobody heard so, stays what it is."""
        large = [chunk for chunk in sent if chunk.stream != LOG_STREAM_SYSTEM and len(chunk.data) > SMALL_BYTES]
        if not large or not self._is_full():
            return list(sent)
        held = await self._held(large)
        left_out = {id(chunk) for chunk in large if chunk.place not in held}
        return [self._mark(chunk) if id(chunk) in left_out else chunk for chunk in sent]

    def _mark(self, chunk: NewChunk) -> NewChunk:
        """One line of the stream system with the number of the chunk's last line, which says how many lines it stands for."""
        _lines.inc(chunk.line_count)
        _bytes.inc(chunk.raw_bytes)
        size = f"{-(-chunk.raw_bytes // _KIB):,} KiB"
        text = dropped_lines_text(chunk.line_count, size=size, limit=f"{DATABASE_LIMIT}, {self._words()}").encode()
        nanos = int(chunk.last_at.timestamp() * 1_000_000) * 1000
        line = LogLine(seq=chunk.seq_to, at_unix_nanos=nanos, stream=LOG_STREAM_SYSTEM, text=text)
        return replace(
            chunk,
            stream=LOG_STREAM_SYSTEM,
            seq_from=chunk.seq_to,
            line_count=1,
            raw_bytes=len(text) + 1,
            first_at=chunk.last_at,
            data=zstandard.compress(LogLines(lines=[line]).SerializeToString()),
        )
