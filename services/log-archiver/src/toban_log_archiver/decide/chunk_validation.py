"""What a chunk must be: its size, its range, and that its lines are the ones it claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import lt

from toban_log_archiver.decide.line import STREAMS

MAX_DATA_BYTES = 1024 * 1024
"""Compressed size of a chunk."""
MAX_RAW_BYTES = 8 * 1024 * 1024
"""Size of a chunk's lines when decompressed: what a reader holds of one stream."""
MAX_LINE_BYTES = 1024 * 1024
"""A line must fit into one answer to a reader."""
_MAX_SEQ = (1 << 62) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The year 2200: far beyond a wrong clock, far below what PostgreSQL and datetime hold.
_MAX_NANOS = 7_258_118_400 * 1_000_000_000


class ChunkInvalid(ValueError):
    """A chunk is refused for good; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a chunk claims about itself."""

    stream: int
    seq_from: int
    seq_to: int
    line_count: int
    data_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The lines of a chunk, column by column; `newlines` is the number of lines that end with one."""

    seqs: Sequence[int]
    nanos: Sequence[int]
    streams: Collection[int]
    sizes: Sequence[int]
    newlines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was found in a good chunk: bytes that the job wrote (newlines included), and the earliest and latest time of a line."""

    raw_bytes: int
    first_at: datetime
    last_at: datetime


def check_claim(claim: Claim) -> None:
    """Raises ChunkInvalid for a claim that no chunk can hold; costs nothing, so it comes before decompression."""
    if claim.stream not in STREAMS:
        raise ChunkInvalid(f"stream {claim.stream} is none of stdout (1), stderr (2), system (3)")
    if not 0 < claim.data_bytes <= MAX_DATA_BYTES:
        raise ChunkInvalid(f"data has {claim.data_bytes} bytes; 1 to {MAX_DATA_BYTES} are taken")
    if not 0 < claim.seq_from <= claim.seq_to <= _MAX_SEQ:
        raise ChunkInvalid(f"the range {claim.seq_from}-{claim.seq_to} is not one of sequence numbers from 1 on")
    if not 0 < claim.line_count <= claim.seq_to - claim.seq_from + 1:
        raise ChunkInvalid(f"line_count {claim.line_count} does not fit into {claim.seq_from}-{claim.seq_to}")


def check_lines(claim: Claim, lines: Columns) -> Measured:
    """What the lines of a chunk measure. Raises ChunkInvalid unless they are exactly those of the claim."""
    seqs = lines.seqs
    if len(seqs) != claim.line_count:
        raise ChunkInvalid(f"it holds {len(seqs)} lines and claims {claim.line_count}")
    if seqs[0] != claim.seq_from or seqs[-1] != claim.seq_to:
        raise ChunkInvalid(f"it holds {seqs[0]}-{seqs[-1]} and claims {claim.seq_from}-{claim.seq_to}")
    if not all(map(lt, seqs, seqs[1:])):
        raise ChunkInvalid("its sequence numbers do not grow from line to line")
    if set(lines.streams) != {claim.stream}:
        raise ChunkInvalid(f"it holds lines of another stream than {claim.stream}")
    check_size(max(lines.sizes))
    return measured(lines.nanos, sum(lines.sizes) + lines.newlines)


def check_size(longest: int) -> None:
    """Raises ChunkInvalid when the longest line of a chunk is too long."""
    if longest > MAX_LINE_BYTES:
        raise ChunkInvalid(f"a line has {longest} bytes; at most {MAX_LINE_BYTES} are taken")


def measured(nanos: Sequence[int], raw_bytes: int) -> Measured:
    """Of lines read at these times. Raises ChunkInvalid for a time that no clock has."""
    first, last = min(nanos), max(nanos)
    if first < 0 or last > _MAX_NANOS:
        raise ChunkInvalid("the time of a line is not between 1970 and 2200")
    return Measured(raw_bytes=raw_bytes, first_at=_time(first), last_at=_time(last))


def _time(nanos: int) -> datetime:
    return _EPOCH + timedelta(microseconds=nanos // 1000)
