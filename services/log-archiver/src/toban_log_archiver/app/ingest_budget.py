"""Drops new output, and counts it in a line, while the output in the database is over its budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

from toban_domain.dropped_lines import DATABASE_LIMIT, dropped_lines_text
from toban_log_archiver.decide.line import SYSTEM, Line
from toban_log_archiver.decide.stored_chunks import NewChunk
from toban_log_archiver.ports.chunk_codec import ChunkCodec
from toban_log_archiver.store import chunks
from toban_observability import metrics
from toban_store.pool import Pool
from toban_store.tx import autocommit

# A chunk of this size takes no more room than the line that would count it.
SMALL_BYTES = 512
_KIB = 1024

_lines = metrics.counter(
    "toban_log_budget_left_out_lines_total", "Output lines dropped because log_budget_db_gb was used up."
)
_bytes = metrics.counter(
    "toban_log_budget_left_out_bytes_total", "Output bytes dropped because log_budget_db_gb was used up."
)


StoredPlaces = Callable[[Sequence[NewChunk]], Awaitable[Collection[tuple[int, int, int, int]]]]
"""The places of those chunks that are stored already, in the database or the archive."""


def stored_places(pool: Pool) -> StoredPlaces:
    """By this database, which knows the archive's manifests too. Raises StoreError."""

    async def stored(sent: Sequence[NewChunk]) -> Collection[tuple[int, int, int, int]]:
        async with autocommit(pool) as t:
            return await chunks.held(t, sent)

    return stored


class IngestBudget:
    """`is_full`: the budget is used up now. `budget_text` is the budget for people."""

    def __init__(
        self,
        *,
        is_full: Callable[[], bool],
        budget_text: Callable[[], str],
        stored: StoredPlaces,
        codec: ChunkCodec,
    ) -> None:
        self._is_full = is_full
        self._budget_text = budget_text
        self._stored = stored
        self._codec = codec

    async def admit(self, sent: Sequence[NewChunk]) -> list[NewChunk]:
        """What is written of `sent`. A chunk that is stored already, and is sent again since its acknowledgement was lost, stays as it is."""
        large = [chunk for chunk in sent if chunk.stream != SYSTEM and len(chunk.data) > SMALL_BYTES]
        if not large or not self._is_full():
            return list(sent)
        stored = await self._stored(large)
        dropped = {id(chunk) for chunk in large if chunk.place not in stored}
        return [self._drop(chunk) if id(chunk) in dropped else chunk for chunk in sent]

    def _drop(self, chunk: NewChunk) -> NewChunk:
        """One line of the stream SYSTEM with the number of the chunk's last line, which counts the dropped lines."""
        _lines.inc(chunk.line_count)
        _bytes.inc(chunk.raw_bytes)
        size = f"{-(-chunk.raw_bytes // _KIB):,} KiB"
        text = dropped_lines_text(
            chunk.line_count, size=size, limit=f"{DATABASE_LIMIT}, {self._budget_text()}"
        ).encode()
        nanos = int(chunk.last_at.timestamp() * 1_000_000) * 1000
        line = Line(chunk.seq_to, nanos, SYSTEM, text, dropped_lines=chunk.line_count, dropped_chunk=True)
        return replace(
            chunk,
            stream=SYSTEM,
            seq_from=chunk.seq_to,
            line_count=1,
            raw_bytes=len(text) + 1,
            first_at=chunk.last_at,
            data=self._codec.encode([line]),
        )
