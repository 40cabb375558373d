"""Frames from outside: bombs, rubbish, and two frames in one."""

import pytest
import zstandard

from toban_log_archiver.adapters.chunk_codec import LogLinesCodec
from toban_log_archiver.decide.chunk_validation import MAX_RAW_BYTES, ChunkInvalid
from toban_proto.v1.logs_pb2 import LogLine, LogLines

GOOD = zstandard.compress(LogLines(lines=[LogLine(seq=1, text=b"\xff\x00 bytes")]).SerializeToString())


def streamed(data: bytes) -> bytes:
    """A frame that does not state its size."""
    maker = zstandard.ZstdCompressor(level=1).compressobj()
    return maker.compress(data) + maker.flush()


def test_bytes_stay_as_they_are() -> None:
    assert [line.text for line in LogLinesCodec().lines(GOOD)] == [b"\xff\x00 bytes"]
    assert len(list(LogLinesCodec().lines(streamed(LogLines(lines=[LogLine(seq=1)]).SerializeToString())))) == 1


@pytest.mark.parametrize(
    "data",
    [
        zstandard.compress(b"\0" * (MAX_RAW_BYTES + 1)),
        zstandard.compress(b"\0" * (1 << 28)),
        streamed(b"\0" * (MAX_RAW_BYTES + 1)),
        GOOD + GOOD,
        GOOD + b"x",
        GOOD[:-3],
        b"",
        b"not zstd at all",
        zstandard.compress(b"\xff\xff\xff not LogLines"),
    ],
    ids=["bomb", "large bomb", "bomb without size", "two", "extra", "cut", "empty", "other", "no lines"],
)
def test_bad_frames_are_refused(data: bytes) -> None:
    with pytest.raises(ChunkInvalid):
        LogLinesCodec().lines(data)
