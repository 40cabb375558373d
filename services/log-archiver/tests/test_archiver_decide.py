"""Pure decisions: claims, lines, days, merging, tails."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_log_archiver.decide.chunk_validation import (
    MAX_DATA_BYTES,
    MAX_LINE_BYTES,
    ChunkInvalid,
    Claim,
    Columns,
    check_claim,
    check_lines,
)
from toban_log_archiver.decide.merge import END, Merge
from toban_log_archiver.decide.partition_window import ahead, may_make
from toban_log_archiver.decide.tail import Last, is_end

GOOD = {"stream": 1, "seq_from": 3, "seq_to": 9, "line_count": 2, "data_bytes": 10}
LINES = {"seqs": [3, 9], "nanos": [5_000, 4_000], "streams": {1}, "sizes": [1, 2], "newlines": 1}


class Line(NamedTuple):
    seq: int
    stream: int


class Text(NamedTuple):
    text: bytes


def packed(seqs: Sequence[int]) -> bytes:
    return json.dumps(list(seqs)).encode()


def test_a_good_chunk_is_measured() -> None:
    check_claim(Claim(**GOOD))
    found = check_lines(Claim(**GOOD), Columns(**LINES))
    assert found.raw_bytes == 4
    assert (found.first_at, found.last_at) == (
        datetime(1970, 1, 1, 0, 0, 0, 4, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": 0},
        {"stream": 4},
        {"data_bytes": 0},
        {"data_bytes": MAX_DATA_BYTES + 1},
        {"seq_from": 0},
        {"seq_from": 10},
        {"seq_to": 1 << 62},
        {"line_count": 0},
        {"line_count": 8},
    ],
)
def test_a_claim_that_no_chunk_can_hold(wrong: dict[str, int]) -> None:
    with pytest.raises(ChunkInvalid):
        check_claim(Claim(**(GOOD | wrong)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"seqs": [3, 5, 9]},
        {"seqs": [3, 8]},
        {"seqs": [4, 9]},
        {"streams": {1, 2}},
        {"streams": {2}},
        {"sizes": [1, MAX_LINE_BYTES + 1]},
        {"nanos": [-1, 0]},
        {"nanos": [0, 1 << 63]},
    ],
)
def test_lines_that_are_not_those_of_the_claim(wrong: dict[str, list[int]]) -> None:
    with pytest.raises(ChunkInvalid):
        check_lines(Claim(**GOOD), Columns(**(LINES | wrong)))


def test_sequence_numbers_that_repeat() -> None:
    with pytest.raises(ChunkInvalid, match="do not grow"):
        check_lines(
            Claim(**(GOOD | {"line_count": 3})),
            Columns(**(LINES | {"seqs": [3, 3, 9], "sizes": [1, 1, 1], "nanos": [1, 1, 1]})),
        )


@pytest.mark.parametrize(("day", "may"), [(1, True), (2, True), (3, False), (-30, True), (-31, False)])
def test_days_near_today_may_be_made(day: int, may: bool) -> None:
    today = date(2031, 3, 1)
    assert may_make(date.fromordinal(today.toordinal() + day - 1), today=today) is may
    first, last = ahead(today)
    assert first < today < last


@given(
    streams=st.lists(st.integers(1, 3), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 59), max_size=20),
    page=st.integers(1, 4),
    from_seq=st.integers(1, 70),
)
def test_merging_gives_every_line_once_and_in_order(
    streams: list[int], cuts: list[int], page: int, from_seq: int
) -> None:
    lines = [Line(seq, stream) for seq, stream in enumerate(streams, start=1)]
    chunks: list[tuple[int, int, list[int]]] = []
    for stream in (1, 2, 3):
        mine: list[int] = []
        for line in (one for one in lines if one.stream == stream):
            if mine and line.seq in cuts:
                chunks.append((mine[0], stream, mine))
                mine = []
            mine.append(line.seq)
        if mine:
            chunks.append((mine[0], stream, mine))
    chunks.sort()
    merge: Merge[Line] = Merge(decode=lambda data: [Line(seq, 0) for seq in json.loads(data)], from_seq=from_seq)
    got: list[int] = []
    for begin in range(0, len(chunks), page):
        part = chunks[begin : begin + page]
        for _, stream, seqs in part:
            merge.add(stream, packed(seqs))
        more = begin + page < len(chunks)
        got += [line.seq for line in merge.ready(part[-1][0] if more else END)]
    assert got == [line.seq for line in lines if line.seq >= from_seq]


def test_merging_drops_what_comes_twice() -> None:
    merge: Merge[Line] = Merge(decode=lambda data: [Line(seq, 1) for seq in json.loads(data)])
    merge.add(1, packed([1, 2, 3]))
    merge.add(1, packed([2, 3, 4]))
    assert [line.seq for line in merge.ready(END)] == [1, 2, 3, 4]
    assert merge.last_seq == 4


@given(
    parts=st.lists(st.lists(st.integers(1, 9), max_size=8), max_size=6),
    lines=st.integers(1, 30),
    size=st.integers(9, 60),
)
def test_a_tail_put_together_from_its_end(parts: list[list[int]], lines: int, size: int) -> None:
    """Stretches are read from the end backwards; what is kept is the longest end that fits."""
    texts = [Text(b"%d" % length * length) for part in parts for length in part]
    kept: Last[Text] = Last(lines=lines, size=size)
    for part in reversed(parts):
        if kept.full:
            break
        found: Last[Text] = Last(lines=lines, size=size)
        found.add(Text(b"%d" % length * length) for length in part)
        kept.add_before(found)
    expected: list[Text] = []
    for text in reversed(texts):
        if len(expected) == lines or sum(len(one.text) for one in expected) + len(text.text) > size:
            break
        expected.insert(0, text)
    assert kept.lines == expected


@pytest.mark.parametrize(
    ("last_seq", "sealed", "read_to", "end"),
    [(None, None, 5, False), (5, 0.0, 5, True), (0, 0.0, 0, True), (5, 1.0, 4, False), (5, 6.0, 4, True)],
)
def test_the_end_of_an_attempt(last_seq: int | None, sealed: float | None, read_to: int, end: bool) -> None:
    assert is_end(last_seq=last_seq, sealed_seconds=sealed, read_to=read_to, grace_seconds=5.0) is end
