"""Bytes in are bytes out: whatever a job writes, in whatever reads it comes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toban_domain.log_block import STDERR, STDOUT, LogBlock
from toban_domain.outcome import ErrorLine
from toban_executor.guard.line_splitter import LINE_LIMIT, LineNumbering, LineSplitter

pieces = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"\n", b"\n\n", b"\r\n", b"\0", b"\x1b[31mred\x1b[0m\r", b"\xff\xfe"]),
    st.integers(LINE_LIMIT - 2, LINE_LIMIT + 2).map(lambda size: b"l" * size),
    st.integers(2 * LINE_LIMIT - 1, 2 * LINE_LIMIT + 1).map(lambda size: b"m" * size + b"\n"),
    st.just(b"short\n" * 5000),
)


def cut(reads: list[bytes]) -> tuple[list[LogBlock], LineNumbering]:
    numbering = LineNumbering()
    cutter = LineSplitter(stream=1, numbering=numbering, now_ns=lambda: 1)
    blocks = [block for data in reads for block in cutter.feed(data)]
    return blocks + list(cutter.finish()), numbering


@given(st.lists(pieces, max_size=8))
@example([b"l" * LINE_LIMIT + b"\n"])
@example([b"l" * LINE_LIMIT, b"\n"])
@example([b"l" * (LINE_LIMIT + 1), b"\n"])
@example([b"a\n" + b"l" * (3 * LINE_LIMIT) + b"\nb\n"])
def test_nothing_is_added_lost_or_moved(reads: list[bytes]) -> None:
    blocks, numbering = cut(reads)
    assert b"".join(block.text for block in blocks) == b"".join(reads)
    following = 1
    for block in blocks:
        assert block.seq_from == following
        following += block.lines
        if block.partial:
            assert (block.lines, b"\n" in block.text) == (1, False)
        else:
            assert (block.text.count(b"\n"), block.text[-1:]) == (block.lines, b"\n")
        assert max(map(len, block.text.split(b"\n"))) <= LINE_LIMIT
    assert numbering.last_seq == following - 1


@pytest.mark.seed(114)
def test_the_last_line_is_the_last_one_with_text() -> None:
    assert cut([b"one\ntwo\n\n  \n"])[1].last_line == "two"
    assert cut([b"one\n", b"\n" * 70_000])[1].last_line == "one"
    assert cut([b"one\nrest"])[1].last_line == "rest"
    assert cut([b"x" * 70_000 + b"\n"])[1].last_line == "x" * 200
    assert cut([b"one\n::progress 100 done::\n"])[1].last_line == "one"
    assert cut([b"\x1b[1;31mone\x1b[0m\n\x1b[0m\n"])[1].last_line == "one", "colours are not for lists"


def write(*lines: tuple[int, bytes]) -> LineNumbering:
    """Each is one read of a stream."""
    numbering = LineNumbering()
    cutters = {one: LineSplitter(stream=one, numbering=numbering, now_ns=lambda: 1) for one in (STDOUT, STDERR)}
    for stream, data in lines:
        list(cutters[stream].feed(data))
    return numbering


def test_the_lines_of_a_failure_are_the_last_ones_of_stderr() -> None:
    trace = b"Traceback:\n  at 1\n\n  at 2\n  at 3\n  at 4\nValueError: no\n"
    told = write((STDOUT, b"begun\n"), (STDERR, trace), (STDOUT, b"closing\nbye\n"))
    assert told.last_line == "bye"
    assert told.error_lines(0) == ((3, "  at 1"), (5, "  at 2"), (6, "  at 3"), (7, "  at 4"), (8, "ValueError: no"))
    assert told.error_lines(8) == (ErrorLine(8, "ValueError: no"),)
    assert told.error_lines(9) == ((9, "closing"), (10, "bye")), "the failed step wrote to stdout only"
    assert told.error_lines(11) == ()


def test_the_lines_of_a_failure_are_found_in_many_reads_and_long_lines() -> None:
    assert [line.text for line in write(*((STDERR, b"%d\n" % n) for n in range(99))).error_lines(0)] == [
        "94", "95", "96", "97", "98"
    ]  # fmt: skip
    long = write((STDERR, b"before\n" + b"x" * (2 * LINE_LIMIT + 5) + b"\nafter\n"))
    assert long.error_lines(0) == ((1, "before"), (2, "x" * 200), (5, "after"))
    assert write((STDERR, b"why\n"), (STDERR, b"\n" * 90_000)).error_lines(0) == ((1, "why"),)
