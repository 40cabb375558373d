"""Where the chunks of a run are read from: the database, the archive, and both as one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from toban_log_archiver.decide.stored_chunks import (
    ChunkHead,
    StoredChunk,
    TimeSpan,
    TokenPlace,
    TokenRow,
    TokenSize,
)


class ChunkSource(Protocol):
    """The stored chunks of an attempt (one token), each named by (stream, seq_from).

    A chunk that is moved between two calls may be given by both sides, and at least by one: ask the database first, then the
    archive. Readers drop what comes twice. Every method raises TobanError when its side does not answer.
    """

    async def attempts(self, run_id: int) -> Sequence[TokenRow]:
        """The tokens of a run that this side knows, also those without lines, the smallest first."""
        ...

    async def page(
        self,
        place: TokenPlace,
        *,
        after: Mapping[int, int],
        size: int,
        span: TimeSpan,
        known: Collection[tuple[int, int]] = (),
    ) -> Sequence[StoredChunk]:
        """At most `size` chunks with `seq_from > after[stream]`, in order of (seq_from, stream); fewer than `size` only at the end.

        A stream that `after` lacks is left out, and so is a chunk that has no line within `span` (by its first_at and last_at). Those of
        the page that are in `known`, as (stream, seq_from), may be left out too: the caller has them.
        """
        ...

    async def starts(self, place: TokenPlace, *, seq: int) -> Mapping[int, int]:
        """For each stream that has one: the largest `seq_from` that is not above `seq`, of the chunk that holds it or is the last before."""
        ...

    async def heads(self, place: TokenPlace, *, streams: Sequence[int], before: int, size: int) -> Sequence[ChunkHead]:
        """At most `size` chunks of these streams with `seq_from < before`, without their lines, the largest `seq_from` first."""
        ...

    async def heads_after(self, place: TokenPlace, *, after: Mapping[int, int], size: int) -> Sequence[ChunkHead]:
        """As `page` for any time, without the lines."""
        ...

    async def sizes(self, run_id: int) -> Mapping[int, TokenSize]:
        """What this side holds of each token of a run. A chunk that the archive has taken over counts there only."""
        ...

    async def places(self, run_id: int) -> Mapping[int, Sequence[str]]:
        """For each token of which this side holds chunks: where, as `db` or `s3://bucket/key`."""
        ...

    async def touched(self, run_ids: Sequence[int], *, streams: Sequence[int], span: TimeSpan) -> Sequence[TokenPlace]:
        """Tokens of these runs of which this side holds a chunk of these streams within `span`, by run and token."""
        ...

    async def expired(self, run_ids: Sequence[int]) -> Mapping[tuple[int, int], int]:
        """For each (run, token) of these runs that has some: how many lines this side held and gave up when their retention had passed."""
        ...
