"""Lines of several streams in one order, each once."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from toban_log_archiver.decide.merge import END, Merge


class Line(NamedTuple):
    seq: int
    stream: int


def packed(seqs: Sequence[int]) -> bytes:
    return json.dumps(list(seqs)).encode()


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
