"""Blocks of lines: refused when they are not what the chunk claims, else given out line by line."""

from collections.abc import Sequence
from typing import Any

import pytest
import zstandard

from toban_log_archiver.adapters.chunk_codec import LogLinesCodec
from toban_log_archiver.decide.chunk_validation import MAX_LINE_BYTES, ChunkInvalid, Claim
from toban_log_archiver.decide.line import Line
from toban_log_archiver.decide.line_blocks import check_blocks, may_keep
from toban_log_archiver.decide.line_filter import Selection
from toban_log_archiver.decide.line_pattern import Pattern
from toban_proto.v1.logs_pb2 import LineBlock, LogLines

NANOS = 1_800_000_000_000_000_000


def block(seq: int, text: bytes, **given: Any) -> LineBlock:
    fields = {"at_unix_nanos": NANOS + seq, "stream": 1, "line_count": max(1, text.count(b"\n"))} | given
    return LineBlock(seq=seq, text=text, **fields)


def claim(seq_from: int, seq_to: int, line_count: int) -> Claim:
    return Claim(stream=1, seq_from=seq_from, seq_to=seq_to, line_count=line_count, data_bytes=1)


CODEC = LogLinesCodec()


def frame(blocks: Sequence[LineBlock]) -> bytes:
    return zstandard.compress(LogLines(blocks=blocks).SerializeToString())


def lines_of(blocks: Sequence[LineBlock]) -> list[Line]:
    return list(CODEC.lines(frame(blocks)))


GOOD = [block(3, b"a\n\nb\n", levels=b"\0\0\5"), block(9, b"rest", partial=True), block(10, b"\xff\0\r\n")]


def test_the_measures_of_good_blocks() -> None:
    found = check_blocks(claim(3, 10, 5), GOOD)
    assert found.raw_bytes == sum(len(one.text) for one in GOOD)
    assert (found.last_at - found.first_at).microseconds == 0


@pytest.mark.parametrize(
    ("blocks", "wanted"),
    [
        (GOOD, (3, 10, 6)),
        (GOOD, (2, 10, 5)),
        (GOOD, (3, 11, 5)),
        ([block(1, b"a\n", stream=2)], (1, 1, 1)),
        ([block(1, b"a\nb", line_count=1)], (1, 1, 1)),
        ([block(1, b"a\nb\n", line_count=3)], (1, 3, 3)),
        ([block(1, b"ab", line_count=2, partial=True)], (1, 2, 2)),
        ([block(1, b"", line_count=0)], (1, 1, 1)),
        ([block(1, b"", line_count=-1)], (1, 1, 1)),
        ([block(1, b"a\nb\n"), block(2, b"c\n")], (1, 2, 3)),
        ([block(1, b"a\n", levels=b"\1\1")], (1, 1, 1)),
        ([block(1, b"a\n", levels=b"\7")], (1, 1, 1)),
        ([block(1, b"a\n", at_unix_nanos=-1)], (1, 1, 1)),
        ([block(1, b"a\nb\n", dropped_lines=2)], (1, 2, 2)),
        ([block(1, b"a\n", dropped_lines=-1)], (1, 1, 1)),
        ([block(1, b"a\n" + b"x" * MAX_LINE_BYTES + b"x\n")], (1, 2, 2)),
        ([block(1, b"x" * MAX_LINE_BYTES + b"x", partial=True)], (1, 1, 1)),
    ],
    ids=str,
)
def test_what_is_not_as_claimed_is_refused(blocks: Sequence[LineBlock], wanted: tuple[int, int, int]) -> None:
    with pytest.raises(ChunkInvalid):
        check_blocks(claim(*wanted), blocks)


def test_lines_one_by_one() -> None:
    wanted = [
        (3, b"a", False, "", NANOS + 3),
        (4, b"", False, "", NANOS + 3),
        (5, b"b", False, "error", NANOS + 3),
        (9, b"rest", True, "", NANOS + 9),
        (10, b"\xff\0\r", False, "", NANOS + 10),
    ]
    assert [(line.seq, line.text, line.partial, line.level, line.at_unix_nanos) for line in lines_of(GOOD)] == wanted


SELECTIONS = [
    Selection(),
    Selection(min_level=4),
    Selection(min_level=6),
    Selection(since_nanos=NANOS + 9),
    Selection(until_nanos=NANOS + 9),
    Selection(pattern=Pattern("es", regex=False), min_level=0),
    Selection(pattern=Pattern("b", regex=False), min_level=5),
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=range(len(SELECTIONS)))
def test_blocks_that_are_passed_over_have_no_wanted_line(selection: Selection) -> None:
    wanted = [line.seq for line in lines_of(GOOD) if selection.keeps(line)]
    assert [line.seq for line in CODEC.selected(frame(GOOD), selection)] == wanted
    assert [may_keep(one, selection) for one in GOOD] == [
        any(selection.keeps(line) for line in lines_of([one])) for one in GOOD
    ]


def test_what_a_frame_will_be_is_known_before_it_is_opened() -> None:
    text = b"\n" * 200_000
    data = zstandard.compress(text)
    assert len(data) < 100
    assert CODEC.opened_size(data) == len(text)
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(text)
    assert CODEC.opened_size(unsaid) == CODEC.opened_size(b"no frame") > len(text)
