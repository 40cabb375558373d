"""Chunks on the wire and in the database: a zstd frame of LogLines, decoded within bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import local

import zstandard
from google.protobuf.message import DecodeError

from toban_domain.dropped_lines import LEVEL_NAMES
from toban_log_archiver.decide.chunk_validation import (
    MAX_RAW_BYTES,
    ChunkInvalid,
    Claim,
    Columns,
    Measured,
    check_claim,
    check_lines,
)
from toban_log_archiver.decide.line import Line
from toban_log_archiver.decide.line_blocks import check_blocks, may_keep, texts
from toban_log_archiver.decide.line_filter import Selection
from toban_proto.v1.logs_pb2 import LineBlock, LogLine, LogLines

# What a decompressor may reserve for its window.
MAX_WINDOW_BYTES = 8 * 1024 * 1024

_NO_SIZE = frozenset({zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR})

_threads = local()


class LogLinesCodec:
    """The ChunkCodec. It has no state but a decompressor a thread."""

    def lines(self, data: bytes) -> Iterable[Line]:
        """As ChunkCodec says."""
        return _lines(_content(_opened(data)))

    def selected(
        self, data: bytes, selection: Selection, on_opened: Callable[[int], None] = lambda _size: None
    ) -> Iterable[Line]:
        """As ChunkCodec says."""
        raw = _opened(data)
        on_opened(len(raw))
        if selection.is_everything:
            return _lines(_content(raw))
        if selection.pattern is not None and not selection.pattern.may_match(raw):
            return ()
        content = _content(raw)
        blocks = [block for block in content.blocks if may_keep(block, selection)]
        return [
            line for line in (_of_blocks(blocks) if content.blocks else _of_lines(content)) if selection.keeps(line)
        ]

    def opened_size(self, data: bytes) -> int:
        """As ChunkCodec says."""
        try:
            size = zstandard.get_frame_parameters(data).content_size
        except zstandard.ZstdError:
            return MAX_RAW_BYTES
        return MAX_RAW_BYTES if size in _NO_SIZE else size

    def check(self, claim: Claim, data: bytes) -> Measured:
        """As ChunkCodec says."""
        check_claim(claim)
        content = _content(_opened(data))
        return check_blocks(claim, content.blocks) if content.blocks else check_lines(claim, _columns(content.lines))

    def encode(self, lines: Sequence[Line]) -> bytes:
        """As ChunkCodec says."""
        message = LogLines()
        for line in lines:
            fill_line(message.lines.add(), line)
        return zstandard.compress(message.SerializeToString())


def fill_line(message: LogLine, line: Line) -> None:
    """Writes a line as executors send it and readers get it.

    Into the empty `message` of its parent: a message that is made first and then given to its parent is copied, which doubles the time.
    """
    seq, nanos, stream, text, partial, level, dropped_lines, dropped_chunk = line
    message.seq, message.at_unix_nanos, message.stream, message.text = seq, nanos, stream, text  # type: ignore[assignment]
    # Each field costs time for each line; most lines have none of these.
    if partial:
        message.partial = True
    if level:
        message.level = level
    if dropped_lines:
        message.dropped_lines, message.dropped_chunk = dropped_lines, dropped_chunk


def _opened(data: bytes) -> bytes:
    try:
        size = zstandard.get_frame_parameters(data).content_size
        # A frame that states its size is allocated at that size, whatever limit is given: checked before.
        if size not in _NO_SIZE and size > MAX_RAW_BYTES:
            raise ChunkInvalid(f"its lines have {size} bytes; at most {MAX_RAW_BYTES} are taken")
        return _decompressor().decompress(data, max_output_size=MAX_RAW_BYTES, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ChunkInvalid(f"its data is not one zstd frame of at most {MAX_RAW_BYTES} bytes ({error})") from None


def _content(raw: bytes) -> LogLines:
    try:
        content = LogLines.FromString(raw)
    except DecodeError:
        raise ChunkInvalid("its data holds no LogLines") from None
    if content.blocks and content.lines:
        raise ChunkInvalid("its data holds both lines and blocks")
    return content


def _lines(content: LogLines) -> Iterator[Line]:
    return _of_blocks(content.blocks) if content.blocks else _of_lines(content)


def _of_lines(content: LogLines) -> Iterator[Line]:
    for line in content.lines:
        yield Line(
            line.seq,
            line.at_unix_nanos,
            line.stream,
            line.text,
            line.partial,
            line.level,
            line.dropped_lines,
            line.dropped_chunk,
        )


def _of_blocks(blocks: Iterable[LineBlock]) -> Iterator[Line]:
    """One line at a time: a caller that iterates in order holds one line."""
    for block in blocks:
        first, at, stream, levels = block.seq, block.at_unix_nanos, block.stream, block.levels
        if block.partial:
            yield Line(first, at, stream, block.text, partial=True)
        elif block.dropped_lines:
            yield Line(first, at, stream, next(texts(block)), dropped_lines=block.dropped_lines)
        elif levels:
            for seq, (text, level) in enumerate(zip(texts(block), levels, strict=True), start=first):
                yield Line(seq, at, stream, text, level=LEVEL_NAMES[level])
        else:
            for seq, text in enumerate(texts(block), start=first):
                yield Line(seq, at, stream, text)


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
