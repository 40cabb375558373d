"""Several chunk sources read as one: the database, then the archive."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from toban_log_archiver.decide.stored_chunks import ChunkHead, StoredChunk, TimeSpan, TokenPlace, TokenRow, TokenSize
from toban_log_archiver.ports.chunk_source import ChunkSource

C = TypeVar("C", StoredChunk, ChunkHead)


class CombinedSource:
    """A ChunkSource over sources in the order in which chunks move from one to the next: read in that order, none is missed.

    A chunk that two of them have is given once, from the first. Every method raises what its sources raise.
    """

    def __init__(self, *sources: ChunkSource) -> None:
        self._sources = sources

    async def attempts(self, run_id: int) -> Sequence[TokenRow]:
        """As ChunkSource says; of two rows of one token the sealed one counts."""
        found: dict[int, TokenRow] = {}
        for source in self._sources:
            for row in await source.attempts(run_id):
                held = found.get(row.place.token)
                if held is None or held.last_seq is None:
                    found[row.place.token] = row
        return [found[token] for token in sorted(found)]

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
        found: dict[tuple[int, int], StoredChunk] = {}
        for source in self._sources:
            # A later source need not fetch what an earlier one gave.
            for chunk in await source.page(place, after=after, size=size, span=span, known={*known, *found}):
                found.setdefault((chunk.stream, chunk.seq_from), chunk)
        return sorted(found.values(), key=_forward)[:size]

    async def starts(self, place: TokenPlace, *, seq: int) -> Mapping[int, int]:
        """As ChunkSource says."""
        found: dict[int, int] = {}
        for source in self._sources:
            for stream, start in (await source.starts(place, seq=seq)).items():
                found[stream] = max(start, found.get(stream, 0))
        return found

    async def heads(self, place: TokenPlace, *, streams: Sequence[int], before: int, size: int) -> Sequence[ChunkHead]:
        """As ChunkSource says."""
        pages = [await source.heads(place, streams=streams, before=before, size=size) for source in self._sources]
        return sorted(_once(pages), key=_backward)[:size]

    async def heads_after(self, place: TokenPlace, *, after: Mapping[int, int], size: int) -> Sequence[ChunkHead]:
        """As ChunkSource says."""
        pages = [await source.heads_after(place, after=after, size=size) for source in self._sources]
        return sorted(_once(pages), key=_forward)[:size]

    async def sizes(self, run_id: int) -> Mapping[int, TokenSize]:
        """As ChunkSource says, added up. Chunks that move meanwhile may be counted twice."""
        found: dict[int, TokenSize] = {}
        for source in self._sources:
            for token, size in (await source.sizes(run_id)).items():
                held = found.get(token)
                found[token] = size if held is None else held + size
        return found

    async def places(self, run_id: int) -> Mapping[int, Sequence[str]]:
        """As ChunkSource says; of every source."""
        found: dict[int, list[str]] = {}
        for source in self._sources:
            for token, places in (await source.places(run_id)).items():
                found.setdefault(token, []).extend(places)
        return found

    async def touched(self, run_ids: Sequence[int], *, streams: Sequence[int], span: TimeSpan) -> Sequence[TokenPlace]:
        """As ChunkSource says."""
        found = {
            place for source in self._sources for place in await source.touched(run_ids, streams=streams, span=span)
        }
        return sorted(found, key=lambda place: (place.run_id, place.token))

    async def expired(self, run_ids: Sequence[int]) -> Mapping[tuple[int, int], int]:
        """As ChunkSource says, added up."""
        found: dict[tuple[int, int], int] = {}
        for source in self._sources:
            for key, lines in (await source.expired(run_ids)).items():
                found[key] = found.get(key, 0) + lines
        return found


def _once(pages: Iterable[Sequence[C]]) -> list[C]:
    chunks: dict[tuple[int, int], C] = {}
    for page in pages:
        for chunk in page:
            chunks.setdefault((chunk.stream, chunk.seq_from), chunk)
    return list(chunks.values())


def _forward(chunk: StoredChunk | ChunkHead) -> tuple[int, int]:
    return chunk.seq_from, chunk.stream


def _backward(chunk: ChunkHead) -> tuple[int, int]:
    return -chunk.seq_from, chunk.stream
