"""The attempts of a run as a Read call sees them: which are wanted, which may still grow, and when the last one has ended."""

from __future__ import annotations

from collections.abc import Sequence

from toban_log_archiver.app.requests import ReadRequest
from toban_log_archiver.decide import tail
from toban_log_archiver.decide.stored_chunks import TokenRow
from toban_log_archiver.ports.chunk_source import ChunkSource

# Lines that come after the seal through another archiver are waited for this long, seconds.
SEAL_GRACE_SECONDS = 5.0


async def wanted(source: ChunkSource, request: ReadRequest) -> Sequence[TokenRow]:
    """The attempts that a request reads, in order. Raises TobanError when a source does not answer."""
    rows = await source.attempts(request.run_id)
    return [
        row
        for row in rows
        if (not request.tokens or row.place.token in request.tokens) and row.place.token >= request.after[0]
    ]


def first_seq(request: ReadRequest, token: int) -> int:
    """The first line that a request wants of an attempt."""
    after_token, after_seq = request.after
    return max(1, after_seq + 1 if after_token == token else request.from_seq)


def may_grow(row: TokenRow, rows: Sequence[TokenRow]) -> bool:
    """True while the next lines of an attempt are waited for: of earlier attempts nothing is, since a later one followed them."""
    return row is rows[-1] and not is_end(row, read_to=0)


def is_end(row: TokenRow, *, read_to: int) -> bool:
    """True when this attempt has no more lines for one who has read to `read_to`."""
    return tail.is_end(
        last_seq=row.last_seq,
        sealed_seconds=row.sealed_seconds,
        read_to=read_to,
        grace_seconds=SEAL_GRACE_SECONDS,
    )
