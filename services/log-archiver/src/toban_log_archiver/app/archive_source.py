"""The archive as readers see it: the manifest says where the frames are, and pieces of objects are read and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.decide.stored_chunks import ChunkHead, StoredChunk, TimeSpan, TokenPlace, TokenRow, TokenSize
from toban_log_archiver.ports.object_store import ObjectStore
from toban_log_archiver.store import archive_manifest
from toban_log_archiver.store.archive_manifest import FramePlace
from toban_log_archiver.store.archive_reads import long_query_tx
from toban_observability import metrics
from toban_store.pool import Pool
from toban_store.tx import autocommit

# Pieces that lie one behind the other in an object are fetched at once, up to this size.
FETCH_BYTES = 4 * 1024 * 1024

_fetched = metrics.counter("toban_archive_read_bytes_total", "Bytes read from the archive for LogReader calls.")
_seconds = metrics.histogram("toban_archive_read_seconds", "Duration of one range read of an archived object.")


class ArchiveSource:
    """The archive's half of a ChunkSource. Without an object store (`store` is None) what it knows can be listed and not read."""

    def __init__(self, *, pool: Pool, store: ObjectStore | None) -> None:
        self._pool = pool
        self._store = store

    async def attempts(self, run_id: int) -> Sequence[TokenRow]:
        """None: the rows of tokens stay in the database when their chunks leave it."""
        del run_id
        return ()

    async def page(
        self,
        place: TokenPlace,
        *,
        after: Mapping[int, int],
        size: int,
        span: TimeSpan,
        known: Collection[tuple[int, int]] = (),
    ) -> Sequence[StoredChunk]:
        """The next archived chunks with their frames. Raises TobanError UNAVAILABLE or NOT_FOUND when the object store does not give them."""
        if not after:
            return []
        async with autocommit(self._pool) as t:
            places = await archive_manifest.page(t, place, after=after, size=size, span=span)
        return await self._fetch([one for one in places if (one.stream, one.seq_from) not in known])

    async def _fetch(self, places: Sequence[FramePlace]) -> list[StoredChunk]:
        """The frames of some places, in that order, without those that have expired meanwhile."""
        found: list[StoredChunk] = []
        for group in _adjacent(places):
            first = group[0]
            try:
                data = await self._read(first.key, first.byte_offset, sum(one.byte_length for one in group))
            except TobanError as error:
                if error.code is ErrorCode.NOT_FOUND and await self._has_expired(first.key):
                    continue
                raise
            for one in group:
                start = one.byte_offset - first.byte_offset
                frame = data[start : start + one.byte_length]
                if hashlib.sha256(frame).digest() != one.sha256:
                    raise TobanError(
                        ErrorCode.INTERNAL,
                        f"the archive is damaged at {first.key}, bytes {one.byte_offset}-{one.byte_offset + one.byte_length - 1}: "
                        "run `toban archive verify`, and bring the object back from a copy",
                    )
                found.append(StoredChunk(stream=one.stream, seq_from=one.seq_from, seq_to=one.seq_to, data=frame))
        return found

    async def starts(self, place: TokenPlace, *, seq: int) -> Mapping[int, int]:
        """For each stream that has one: the largest `seq_from` that is not above `seq`."""
        async with autocommit(self._pool) as t:
            return await archive_manifest.starts(t, place, seq=seq)

    async def heads(self, place: TokenPlace, *, streams: Sequence[int], before: int, size: int) -> Sequence[ChunkHead]:
        """The last chunks of these streams before `before`, the largest `seq_from` first."""
        async with autocommit(self._pool) as t:
            return await archive_manifest.heads(t, place, streams=streams, before=before, size=size)

    async def heads_after(self, place: TokenPlace, *, after: Mapping[int, int], size: int) -> Sequence[ChunkHead]:
        """As `page` for any time, without the lines."""
        if not after:
            return []
        async with autocommit(self._pool) as t:
            return await archive_manifest.heads_after(t, place, after=after, size=size)

    async def sizes(self, run_id: int) -> Mapping[int, TokenSize]:
        """What is archived of each token of a run."""
        async with autocommit(self._pool) as t:
            return await archive_manifest.sizes(t, run_id)

    async def places(self, run_id: int) -> Mapping[int, Sequence[str]]:
        """The objects that hold each token of a run, as `s3://bucket/key`."""
        async with autocommit(self._pool) as t:
            found = await archive_manifest.places(t, run_id)
        store = self._store
        return {token: [store.uri(key) if store else key for key in keys] for token, keys in found.items()}

    async def touched(self, run_ids: Sequence[int], *, streams: Sequence[int], span: TimeSpan) -> Sequence[TokenPlace]:
        """Tokens of these runs that have an archived chunk of these streams within `span`."""
        async with long_query_tx(self._pool) as t:
            return await archive_manifest.touched(t, run_ids, streams=streams, span=span)

    async def expired(self, run_ids: Sequence[int]) -> Mapping[tuple[int, int], int]:
        """How many lines of each token have left the archive."""
        async with long_query_tx(self._pool) as t:
            return await archive_manifest.expired(t, run_ids)

    async def _has_expired(self, key: str) -> bool:
        """Whether an object that is not there has expired since its place was looked up."""
        async with autocommit(self._pool) as t:
            return await archive_manifest.has_expired(t, key)

    async def _read(self, key: str, offset: int, length: int) -> bytes:
        if self._store is None:
            raise TobanError(
                ErrorCode.UNAVAILABLE,
                f"these lines are in the archive ({key}), and this log-archiver has none: set SCHEDULER_S3_BUCKET",
            )
        with _seconds.time():
            data = await self._store.read(key, offset, length)
        _fetched.inc(length)
        return data


def _adjacent(places: Sequence[FramePlace]) -> Iterator[list[FramePlace]]:
    group: list[FramePlace] = []
    size = 0
    for one in places:
        last = group[-1] if group else None
        follows = last and last.key == one.key and last.byte_offset + last.byte_length == one.byte_offset
        if group and not (follows and size + one.byte_length <= FETCH_BYTES):
            yield group
            group, size = [], 0
        group.append(one)
        size += one.byte_length
    if group:
        yield group
