"""Blocks of lines, as chunks have them: whether they are those that the chunk claims, and their lines one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from toban_domain.dropped_lines import LEVEL_NAMES
from toban_log_archiver.decide.chunk_validation import (
    MAX_LINE_BYTES,
    ChunkInvalid,
    Claim,
    Measured,
    check_size,
    measured,
)
from toban_log_archiver.decide.line_filter import Selection

NEWLINE = b"\n"


class HasLines(Protocol):
    """Consecutive lines of one stream."""

    @property
    def seq(self) -> int:
        """Of the first line."""

    @property
    def at_unix_nanos(self) -> int:
        """When they were read."""

    @property
    def stream(self) -> int:
        """1 stdout, 2 stderr, 3 the executor's own."""

    @property
    def text(self) -> bytes:
        """Each with its newline, or one partial line."""

    @property
    def line_count(self) -> int:
        """How many."""

    @property
    def partial(self) -> bool:
        """One line without a newline."""

    @property
    def levels(self) -> bytes:
        """A place in LEVEL_NAMES a line, or nothing."""

    @property
    def dropped_lines(self) -> int:
        """What a block of one line counts."""


def check_blocks(claim: Claim, blocks: Sequence[HasLines]) -> Measured:
    """What the lines of a chunk measure. Raises ChunkInvalid unless they are exactly those of the claim. Costs nothing a line."""
    end, count = 0, 0
    for block in blocks:
        _check(block, stream=claim.stream)
        if block.seq <= end:
            raise ChunkInvalid("its sequence numbers do not grow from block to block")
        end = block.seq + block.line_count - 1
        count += block.line_count
    if count != claim.line_count:
        raise ChunkInvalid(f"it holds {count} lines and claims {claim.line_count}")
    if blocks[0].seq != claim.seq_from or end != claim.seq_to:
        raise ChunkInvalid(f"it holds {blocks[0].seq}-{end} and claims {claim.seq_from}-{claim.seq_to}")
    return measured([block.at_unix_nanos for block in blocks], sum(len(block.text) for block in blocks))


def _check(block: HasLines, *, stream: int) -> None:
    if block.stream != stream:
        raise ChunkInvalid(f"it holds lines of another stream than {stream}")
    found = 1 if block.partial else block.text.count(NEWLINE)
    if found != block.line_count or not (block.partial or block.text.endswith(NEWLINE)):
        raise ChunkInvalid(f"a block of {block.line_count} lines holds {found}, or does not end with one")
    if block.levels and (len(block.levels) != found or max(block.levels) >= len(LEVEL_NAMES)):
        raise ChunkInvalid("the levels of a block are not those of its lines")
    if block.dropped_lines and (found != 1 or block.dropped_lines < 0):
        raise ChunkInvalid(f"a block of {found} lines counts {block.dropped_lines} dropped lines")
    if len(block.text) > MAX_LINE_BYTES:
        check_size(max(map(len, texts(block))))


def may_keep(block: HasLines, selection: Selection) -> bool:
    """False when no line of a block is wanted, which is known before its lines are made."""
    return (
        max(block.levels, default=0) >= selection.min_level
        and (selection.since_nanos is None or block.at_unix_nanos >= selection.since_nanos)
        and (selection.until_nanos is None or block.at_unix_nanos < selection.until_nanos)
        and (selection.pattern is None or selection.pattern.may_match(block.text))
    )


def texts(block: HasLines) -> Iterator[bytes]:
    """The lines of a block without their newlines, one at a time."""
    if block.partial:
        yield block.text
        return
    text, start = block.text, 0
    while start < len(text):
        end = text.index(NEWLINE, start)
        yield text[start:end]
        start = end + 1
