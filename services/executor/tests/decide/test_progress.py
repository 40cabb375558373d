"""Markers in the output of jobs: what is one, which counts, what coordinators get."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.outcome import AttemptKey
from toban_executor.decide.progress import ProgressBook, marker

KEY, OTHER = AttemptKey(1, 10), AttemptKey(2, 20)
NOW_NS = 1_763_700_000_500_000_000


def read(book: ProgressBook, text: bytes, *, key: AttemptKey = KEY, stream: int = 1, partial: bool = False) -> None:
    book.read(key, stream=stream, text=text, partial=partial, at_ns=NOW_NS)


def sent(book: ProgressBook) -> list[tuple[float, str]]:
    return [(said.percentage, said.summary) for said in book.unacknowledged([KEY]).values()]


@pytest.mark.parametrize(
    ("line", "percentage", "summary"),
    [
        (b"::progress 40 half way::", 40, "half way"),
        (b"::progress 0::", 0, ""),
        (b"::progress 100::", 100, ""),
        (b"::progress 33.3 third ::", 33.3, "third"),
        (b"::progress 7% of  it::\r", 7, "of it"),
        (b"::progress  5   spaces ::  ", 5, "spaces"),
        (b"::progress 5 a::b::", 5, "a::b"),
        (b"::progress 5 caf\xc3\xa9 \xff\x00::", 5, "café �"),
    ],
)
def test_a_marker(line: bytes, percentage: float, summary: str) -> None:
    said = marker(line, NOW_NS)
    assert said is not None
    assert (said.percentage, said.summary) == (percentage, summary)
    assert said.at == datetime(2025, 11, 21, 4, 40, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"::progress::",
        b"::progress ::",
        b"::progress half way::",
        b"::progress 101::",
        b"::progress -1::",
        b"::progress 40",
        b"::progress 40:",
        b" ::progress 40::",
        b"see ::progress 40::",
        b"::progress 40:: and more",
        b"::progress 40half::",
        b"::progress nan::",
        b"::progress 1e1::",
        b"::Progress 40::",
        b"::progress 40 " + b"x" * 3000 + b"::",
    ],
)
def test_plain_text(line: bytes) -> None:
    assert marker(line, NOW_NS) is None


@given(st.binary(max_size=3000))
def test_no_output_breaks_it(noise: bytes) -> None:
    said = marker(b"::progress " + noise, NOW_NS)
    assert said is None or (0 <= said.percentage <= 100 and len(said.summary) <= 200)


def test_the_last_marker_of_a_block_counts_and_is_sent_until_it_is_acknowledged() -> None:
    book = ProgressBook()
    read(book, b"::progress 1::\nwork\n::progress 2 two::\nmore\n::progress oops::\n")
    assert sent(book) == [(2, "two")]
    assert book.unacknowledged([OTHER]) == {}
    told = book.unacknowledged([KEY])
    read(book, b"::progress 3::\n")
    book.acknowledge(told)
    assert sent(book) == [(3, "")], "said while the heartbeat was under way"
    book.acknowledge(book.unacknowledged([KEY]))
    assert sent(book) == []
    closed = book.closed(KEY)
    assert closed is not None and closed.percentage == 3
    assert book.closed(KEY) is None


def test_stderr_and_lines_in_pieces_do_not_count() -> None:
    book = ProgressBook()
    read(book, b"::progress 1::\n", stream=2)
    read(book, b"x" * 16384, partial=True)
    read(book, b"::progress 2::\n")
    assert sent(book) == [], "the rest of a long line is not a line"
    read(book, b"::progress 3::\n")
    assert sent(book) == [(3, "")]
    read(book, b"::progress 4 no newline::", partial=True)
    assert sent(book) == [(4, "no newline")]
    read(book, b"::progress 5 next step::\n")
    assert sent(book) == [(5, "next step")]


def test_a_line_in_pieces_may_be_followed_by_a_marker() -> None:
    book = ProgressBook()
    read(book, b"x" * 16384, partial=True)
    read(book, b"end of it\n::progress 9::\n")
    assert sent(book) == [(9, "")]
