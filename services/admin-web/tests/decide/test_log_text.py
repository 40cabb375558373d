"""Log lines for display."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide.log_lines import LogLine
from toban_admin_web.decide.log_text import clean, coloured, join_partial, printable, printable_json


def test_terminal_codes_are_removed() -> None:
    assert clean("\x1b[1;31mred\x1b[0m\ttab \x07bell \u202eturned") == "red\ttab bell turned"
    assert clean(" 10 %\r 90 %\r100 %") == "100 %"
    assert clean("done\r") == "done"
    assert clean("\x1b]0;title\x07text") == "text"


@given(st.text(alphabet=st.characters()))
def test_clean_lines_are_one_line_without_control_characters(text: str) -> None:
    shown = clean(text)
    assert len(shown.splitlines()) <= 1
    assert not [one for one in shown if one != "\t" and (ord(one) < 32 or 127 <= ord(one) < 160)]
    assert clean(shown) == shown


SGR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_log_keeps_colours_and_no_other_codes() -> None:
    assert coloured("\x1b[1;31mred\x1b[0m \x1b[38;5;9mx") == "\x1b[1;31mred\x1b[0m \x1b[38;5;9mx"
    assert coloured("\x1b[2Ka\x1b[3Ab\x1b]8;;http://x\x07link\x1b]8;;\x07\u202ec\x9b31m") == "ablinkc31m"
    assert coloured("\x1b[?31mx\x1b[38:2:1:2:3my\x1b[" + "1;" * 40 + "mz") == "xyz"
    assert coloured("10 %\r\x1b[32m90 %\x1b[0m\r\x1b[0m") == "\x1b[32m90 %\x1b[0m"
    assert coloured("\x1b[31m\x1b[0m") == "" and coloured("\x1b\x1b[5A[31mx") == "[31mx"


@given(st.text(alphabet=st.sampled_from("\x1b[]m31;:A\\\r\x00\x07\x9b8 a\u202e"), max_size=30))
def test_a_coloured_line_is_the_clean_line_with_colours(text: str) -> None:
    shown = coloured(text)
    assert SGR.sub("", shown) == clean(text)
    assert coloured(shown) == shown


@given(st.text(alphabet=st.characters()))
def test_texts_keep_their_lines_and_nothing_unprintable(text: str) -> None:
    shown = printable(text)
    assert not [one for one in shown if one not in "\t\n" and (ord(one) < 32 or 127 <= ord(one) < 160)]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
    assert printable(shown) == shown
    assert shown.count("\n") <= text.count("\n")


def test_a_carriage_return_hides_nothing_of_a_text() -> None:
    assert printable("first\r\nsecond\rthird") == "first\nsecondthird"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_meaning(text: str) -> None:
    written = printable_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
    assert json.loads(written) == {text: [text]} and printable(written) == written


def _line(seq: int, text: str, *, stream: str = "stdout", partial: bool = False, token: int = 1) -> LogLine:
    return LogLine(token=token, seq=seq, at=None, stream=stream, text=text, partial=partial)


def test_parts_of_a_line_are_joined_within_a_stream_and_an_attempt() -> None:
    lines = [
        _line(1, "a", partial=True),
        _line(2, "b", partial=True),
        _line(3, "c"),
        _line(4, "d", partial=True),
        _line(5, "e", stream="stderr"),
        _line(6, "f", partial=True),
        _line(1, "g", token=2),
    ]
    assert [one.text for one in join_partial(lines)] == ["abc", "d", "e", "f", "g"]
