"""What lines are searched for: literal text and bounded expressions."""

from __future__ import annotations

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_log_archiver.decide.line_pattern import MAX_MATCH_BYTES, MAX_PATTERN_CHARS, Pattern, PatternInvalid

WORDS = st.text(alphabet="ab.*[\\é", min_size=1, max_size=5)


@given(pattern=WORDS, line=st.binary(max_size=12) | WORDS.map(str.encode))
def test_literal_text_has_no_magic(pattern: str, line: bytes) -> None:
    found = Pattern(pattern, regex=False)
    assert found.matches(line) == (pattern.encode() in line)
    assert found.may_match(b"\x01" + line + b"\x02") >= found.matches(line)


@given(
    pattern=st.sampled_from(["a", "^a", "b$", "a.b", "(a|b)+c?", "[ab]{2}", "(?i)AB"]),
    line=st.text("abcAB ", max_size=8),
)
def test_an_expression_means_what_it_means_elsewhere(pattern: str, line: str) -> None:
    assert Pattern(pattern, regex=True).matches(line.encode()) == (re.search(pattern, line) is not None)


@pytest.mark.parametrize(
    "bad", ["(", "[z-a]", "a{2000}", "(?=x)", "*", "(?P<x", "(x{100}){100}", "x" * (MAX_PATTERN_CHARS + 1)]
)
def test_expressions_that_are_refused(bad: str) -> None:
    with pytest.raises(PatternInvalid, match=r"\w"):
        Pattern(bad, regex=True)


@pytest.mark.parametrize("evil", ["(a+)+$", "(a|a)*b", "(.*a){20}q", "(a?){80}a{80}b"])
def test_expressions_that_ruin_others_are_harmless(evil: str) -> None:
    """Backtracking engines need longer than the universe for these."""
    pattern = Pattern(evil, regex=True)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(pattern.matches(b"a" * (MAX_MATCH_BYTES - 1) + b"!")))
    thread.start()
    thread.join(20)
    assert answers == [False]


def test_bytes_that_are_no_text() -> None:
    assert Pattern("disk", regex=True).matches(b"\xff\xfedisk\xff")
    assert Pattern("é", regex=False).matches("caf\u00e9".encode())


def test_an_expression_takes_the_beginning_of_a_very_long_line_for_the_line() -> None:
    line = b"begin" + b"x" * MAX_MATCH_BYTES + b"end"
    assert [Pattern(text, regex=True).matches(line) for text in ("^begin", "end$", "x$")] == [True, False, True]
    assert Pattern("end", regex=False).matches(line)
