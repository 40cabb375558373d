"""Chunks on the wire: a zstd frame of LogLines, opened with bounds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from threading import local

import zstandard
from google.protobuf.message import DecodeError

from toban_log_archiver.decide.chunk import MAX_RAW_BYTES, ChunkInvalid, Claim, Columns, check_claim, check_lines
from toban_log_archiver.decide.select import Selection
from toban_proto.v1.logs_pb2 import LogChunk, LogLine, LogLines
from toban_store.logs.chunks import NewChunk

# What a decompressor may reserve for its window.
MAX_WINDOW_BYTES = 8 * 1024 * 1024

_threads = local()


def lines_of(data: bytes) -> Sequence[LogLine]:
    """The lines in a frame. Raises ChunkInvalid for what is no frame, is larger than it may be, or holds no LogLines."""
    return _parsed(_opened(data))


def selected(data: bytes, selection: Selection) -> Sequence[LogLine]:
    """Those lines of a frame that are wanted. Raises as lines_of."""
    raw = _opened(data)
    if selection.is_everything:
        return _parsed(raw)
    if selection.pattern is not None and not selection.pattern.may_match(raw):
        return ()
    return [line for line in _parsed(raw) if selection.keeps(line)]


def _opened(data: bytes) -> bytes:
    try:
        size = zstandard.get_frame_parameters(data).content_size
        # A frame that states its size is allocated at that size, whatever limit is given: look before.
        if size not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR) and size > MAX_RAW_BYTES:
            raise ChunkInvalid(f"its lines have {size} bytes; at most {MAX_RAW_BYTES} are taken")
        return _decompressor().decompress(data, max_output_size=MAX_RAW_BYTES, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ChunkInvalid(f"its data is not one zstd frame of at most {MAX_RAW_BYTES} bytes ({error})") from None


def _parsed(raw: bytes) -> Sequence[LogLine]:
    try:
        return LogLines.FromString(raw).lines
    except DecodeError:
        raise ChunkInvalid("its data holds no LogLines") from None


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
    lines = lines_of(chunk.data)
    measured = check_lines(
        claim,
        Columns(
            seqs=[line.seq for line in lines],
            nanos=[line.at_unix_nanos for line in lines],
            streams={line.stream for line in lines},
            sizes=[len(line.text) for line in lines],
            newlines=sum(not line.partial for line in lines),
        ),
    )
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


def _decompressor() -> zstandard.ZstdDecompressor:
    """One a thread: they may not be shared."""
    found: zstandard.ZstdDecompressor | None = getattr(_threads, "decompressor", None)
    if found is None:
        found = _threads.decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    return found
