"""Chunks on the wire: a zstd frame of LogLines, opened with bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from threading import local
from typing import overload

import zstandard
from google.protobuf.message import DecodeError

from toban_domain.dropped_lines import LEVEL_NAMES, dropped_line_count, is_database_drop
from toban_log_archiver.decide.chunk_validation import (
    MAX_RAW_BYTES,
    ChunkInvalid,
    Claim,
    Columns,
    check_claim,
    check_lines,
)
from toban_log_archiver.decide.dropped_lines import Mark
from toban_log_archiver.decide.line_blocks import check_blocks, may_keep, texts
from toban_log_archiver.decide.line_filter import Selection
from toban_log_archiver.store.chunks import NewChunk
from toban_proto.v1.logs_pb2 import LineBlock, LogChunk, LogLine, LogLines

# What a decompressor may reserve for its window.
MAX_WINDOW_BYTES = 8 * 1024 * 1024

_NO_SIZE = frozenset({zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR})

_threads = local()


def lines_of(data: bytes) -> Sequence[LogLine]:
    """The lines in a frame. Raises ChunkInvalid for what is no frame, is larger than it may be, or holds no LogLines."""
    return _parsed(_opened(data))


def selected(data: bytes, selection: Selection, opened: Callable[[int], None] = lambda _: None) -> Sequence[LogLine]:
    """Those lines of a frame that are wanted; `opened` hears how large the frame is. Raises as lines_of."""
    raw = _opened(data)
    opened(len(raw))
    if selection.is_everything:
        return _parsed(raw)
    if selection.pattern is not None and not selection.pattern.may_match(raw):
        return ()
    content = _content(raw)
    blocks = [block for block in content.blocks if may_keep(block, selection)]
    return [line for line in (BlockLines(blocks) if content.blocks else content.lines) if selection.keeps(line)]


def count_marks(data: bytes) -> list[Mark]:
    """For each line of a frame of the stream system what it stands for; nothing for a frame that cannot be opened."""
    try:
        return [Mark(line.seq, dropped_line_count(line.text), is_database_drop(line.text)) for line in lines_of(data)]
    except ChunkInvalid:
        # Who reads it is told what is wrong with it.
        return []


def opened_size(data: bytes) -> int:
    """How large a frame says it is once it is opened; the most that is taken when it does not say."""
    try:
        size = zstandard.get_frame_parameters(data).content_size
    except zstandard.ZstdError:
        return MAX_RAW_BYTES
    return MAX_RAW_BYTES if size in _NO_SIZE else size


def _opened(data: bytes) -> bytes:
    try:
        size = zstandard.get_frame_parameters(data).content_size
        # A frame that states its size is allocated at that size, whatever limit is given: look before.
        if size not in _NO_SIZE and size > MAX_RAW_BYTES:
            raise ChunkInvalid(f"its lines have {size} bytes; at most {MAX_RAW_BYTES} are taken")
        return _decompressor().decompress(data, max_output_size=MAX_RAW_BYTES, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ChunkInvalid(f"its data is not one zstd frame of at most {MAX_RAW_BYTES} bytes ({error})") from None


def _parsed(raw: bytes) -> Sequence[LogLine]:
    content = _content(raw)
    return BlockLines(content.blocks) if content.blocks else content.lines


def _content(raw: bytes) -> LogLines:
    try:
        content = LogLines.FromString(raw)
    except DecodeError:
        raise ChunkInvalid("its data holds no LogLines") from None
    if content.blocks and content.lines:
        raise ChunkInvalid("its data holds both lines and blocks")
    return content


class BlockLines(Sequence[LogLine]):
    """The lines of blocks, made one at a time when they are asked for: whoever goes through them in order holds one line."""

    def __init__(self, blocks: Sequence[LineBlock]) -> None:
        self._blocks = blocks
        self._count = sum(block.line_count for block in blocks)
        self._to_come: Iterator[LogLine] = iter(())
        self._made: LogLine | None = None
        self._at = self._count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[LogLine]:
        for block in self._blocks:
            first, at, stream, levels = block.seq, block.at_unix_nanos, block.stream, block.levels
            if block.partial:
                yield LogLine(seq=first, at_unix_nanos=at, stream=stream, text=block.text, partial=True)
            elif levels:
                for seq, (text, level) in enumerate(zip(texts(block), levels, strict=True), start=first):
                    yield LogLine(seq=seq, at_unix_nanos=at, stream=stream, text=text, level=LEVEL_NAMES[level])
            else:
                for seq, text in enumerate(texts(block), start=first):
                    yield LogLine(seq=seq, at_unix_nanos=at, stream=stream, text=text)

    @overload
    def __getitem__(self, index: int) -> LogLine: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogLine]: ...
    def __getitem__(self, index: int | slice) -> LogLine | list[LogLine]:
        if isinstance(index, slice):
            return list(self)[index]
        wanted = range(self._count)[index]
        if wanted < self._at:
            self._to_come, self._at = iter(self), -1
        while self._at < wanted:
            self._made = next(self._to_come)
            self._at += 1
        assert self._made is not None
        return self._made


def checked(chunk: LogChunk, log_day: date) -> NewChunk:
    """The chunk as it will be stored. Raises ChunkInvalid. Its measures are our own, not the sender's."""
    claim = Claim(
        stream=chunk.stream,
        seq_from=chunk.seq_from,
        seq_to=chunk.seq_to,
        line_count=chunk.line_count,
        data_bytes=len(chunk.data),
    )
    check_claim(claim)
    content = _content(_opened(chunk.data))
    measured = check_blocks(claim, content.blocks) if content.blocks else check_lines(claim, _columns(content.lines))
    return NewChunk(
        log_day=log_day,
        run_id=chunk.run_id,
        token=chunk.token,
        stream=chunk.stream,
        seq_from=chunk.seq_from,
        seq_to=chunk.seq_to,
        line_count=chunk.line_count,
        raw_bytes=measured.raw_bytes,
        first_at=measured.first_at,
        last_at=measured.last_at,
        data=chunk.data,
    )


def _columns(lines: Sequence[LogLine]) -> Columns:
    return Columns(
        seqs=[line.seq for line in lines],
        nanos=[line.at_unix_nanos for line in lines],
        streams={line.stream for line in lines},
        sizes=[len(line.text) for line in lines],
        newlines=sum(not line.partial for line in lines),
    )


def _decompressor() -> zstandard.ZstdDecompressor:
    """One a thread: they may not be shared."""
    found: zstandard.ZstdDecompressor | None = getattr(_threads, "decompressor", None)
    if found is None:
        found = _threads.decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    return found
