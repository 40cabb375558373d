"""The chunks that are in the database, as a ChunkSource."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from toban_log_archiver.decide.stored_chunks import ChunkHead, StoredChunk, TimeSpan, TokenPlace, TokenRow, TokenSize
from toban_log_archiver.store import chunks, log_attempts
from toban_log_archiver.store.archive_reads import long_query_tx
from toban_store.pool import Pool
from toban_store.tx import autocommit

PLACE = "db"


class DatabaseSource:
    """A connection is held for one query at a time. Every method raises StoreError when PostgreSQL does not answer."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool

    async def attempts(self, run_id: int) -> Sequence[TokenRow]:
        """As ChunkSource says."""
        async with autocommit(self._pool) as t:
            return await log_attempts.of_run(t, run_id)

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
        async with autocommit(self._pool) as t:
            # What is known here costs less to read than to leave out.
            del known
            return await chunks.page(t, place, after=after, size=size, span=span)

    async def starts(self, place: TokenPlace, *, seq: int) -> Mapping[int, int]:
        """As ChunkSource says."""
        async with autocommit(self._pool) as t:
            return await chunks.starts(t, place, seq=seq)

    async def heads(self, place: TokenPlace, *, streams: Sequence[int], before: int, size: int) -> Sequence[ChunkHead]:
        """As ChunkSource says."""
        async with autocommit(self._pool) as t:
            return await chunks.heads(t, place, streams=streams, before=before, size=size)

    async def heads_after(self, place: TokenPlace, *, after: Mapping[int, int], size: int) -> Sequence[ChunkHead]:
        """As ChunkSource says."""
        async with autocommit(self._pool) as t:
            return await chunks.heads_after(t, place, after=after, size=size)

    async def sizes(self, run_id: int) -> Mapping[int, TokenSize]:
        """As ChunkSource says."""
        async with autocommit(self._pool) as t:
            return await chunks.sizes(t, run_id)

    async def places(self, run_id: int) -> Mapping[int, Sequence[str]]:
        """As ChunkSource says."""
        return {token: [PLACE] for token in await self.sizes(run_id)}

    async def touched(self, run_ids: Sequence[int], *, streams: Sequence[int], span: TimeSpan) -> Sequence[TokenPlace]:
        """As ChunkSource says."""
        async with long_query_tx(self._pool) as t:
            return await log_attempts.touched(t, run_ids, streams=streams, span=span)

    async def expired(self, run_ids: Sequence[int]) -> Mapping[tuple[int, int], int]:
        """None: nothing leaves the database but for the archive."""
        del run_ids
        return {}
