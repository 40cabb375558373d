"""The last lines of an attempt, and its end."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_log_archiver.decide.tail import Last, is_end


class Text(NamedTuple):
    text: bytes


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
