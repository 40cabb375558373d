"""Blocks of a log: positions, reads, sizes, anchors, markers."""

from __future__ import annotations

import pytest

from toban_admin_web.decide.log_blocks import (
    BLOCK_LINES,
    BlockQuery,
    LineFilter,
    cut_after,
    cut_before,
    is_marker,
    line_anchor,
    line_reference,
    parse_block_query,
    parse_line_filter,
    read_after,
    reads_before,
    spans_around,
)
from toban_admin_web.decide.log_cursor import Cursor
from toban_admin_web.decide.log_find import LogHits, LogQuery, parse_log_query, parse_page
from toban_admin_web.decide.log_lines import LogLine

ALL = LineFilter()


def line(seq: int, text: str = "x", *, token: int = 7, stream: str = "stdout", partial: bool = False) -> LogLine:
    return LogLine(token=token, seq=seq, at=None, stream=stream, text=text, partial=partial)


def test_a_block_is_asked_for_by_one_position() -> None:
    wanted = LineFilter(streams=("stderr",), level="warning")
    asked = parse_block_query({"around": "7:120", "limit": "50"}, wanted)
    assert asked == BlockQuery(side="around", at=Cursor(7, 120), lines=50, wanted=wanted)
    assert parse_block_query({"before": "end"}, ALL) == BlockQuery(
        side="before", at=None, lines=BLOCK_LINES, wanted=ALL
    )
    assert parse_block_query({"after": "0:0"}, ALL) == BlockQuery(
        side="after", at=Cursor(), lines=BLOCK_LINES, wanted=ALL
    )
    for wrong in (
        {},
        {"after": "1:1", "before": "1:2"},
        {"after": "x"},
        {"after": "end"},
        {"before": ""},
        {"after": "1:1", "limit": "0"},
        {"after": "1:1", "limit": "501"},
        {"after": "1:1", "limit": "-1"},
        {"after": "1:1", "limit": "٣"},
    ):
        assert parse_block_query(wrong, ALL) is None, wrong


def test_filters_have_known_names_only() -> None:
    assert parse_line_filter(["stderr", "x", "stdout"], "fatal") == LineFilter(
        streams=("stdout", "stderr"), level="fatal"
    )
    assert parse_line_filter(["stderr", "stdout", "system"], "loud") == ALL


def test_earlier_lines_come_from_the_attempt_and_then_from_those_before_it() -> None:
    assert reads_before(None, [5, 7], 10) == [{"tail": 10}]
    assert reads_before(Cursor(7, 4), [5, 7, 9], 10) == [
        {"token": 7, "to_seq": 3, "tail": 10},
        {"tokens": [5], "tail": 10},
    ]
    assert reads_before(Cursor(7, 1), [3, 5, 7], 10) == [{"tokens": [3, 5], "tail": 10}]
    assert reads_before(Cursor(5, 1), [5, 7], 10) == []
    assert read_after(Cursor(7, 4), 10) == {"after": {"token": 7, "seq": 4}, "head": 10}


def test_a_block_is_bounded_by_its_text_and_never_empty() -> None:
    lines = [line(n, "x" * 10) for n in range(1, 6)]
    assert [one.seq for one in cut_after(lines, 25)] == [1, 2]
    assert [one.seq for one in cut_before(lines, 25)] == [4, 5]
    assert [one.seq for one in cut_before(lines, 1)] == [5]
    assert cut_after(lines) == lines and cut_after([]) == []


def test_references_to_lines() -> None:
    tokens = [70, 71]
    for text in ("120", "L120", "#L120", " l120 "):
        assert line_reference(text, tokens, shown=71) == Cursor(71, 120), text
    assert line_reference("#A1-L120", tokens, shown=71) == Cursor(70, 120)
    for wrong in ("", "A3-L1", "A0-L1", "L0", "A1", "x", "L" + "9" * 19, "1;2"):
        assert line_reference(wrong, tokens, shown=71) is None, wrong
    assert line_reference("L1", [], shown=0) is None


def test_anchors_name_the_attempt_where_there_are_several() -> None:
    assert line_anchor(70, 3, {70: 1}) == "L3"
    assert line_anchor(71, 3, {70: 1, 71: 2}) == "A2-L3"


@pytest.mark.parametrize(
    "text",
    ["::progress 40 half way::", "::heartbeat::", '::output {"rows": 3}::', "::log_ref s3://b/k::", "::heartbeat:: \r"],
)
def test_markers(text: str) -> None:
    assert is_marker(line(1, text))
    assert not is_marker(line(1, text, stream="stderr"))
    assert not is_marker(line(1, text, partial=True))
    assert (
        not is_marker(line(1, f" {text}")) and not is_marker(line(1, f"{text}x")) and not is_marker(line(1, text[:-4]))
    )


def test_the_spans_around_hits_are_joined_where_they_touch() -> None:
    hits = [line(1), line(2), line(8), line(30), line(31, token=8)]
    assert spans_around(hits, 2) == [(7, 1, 4), (7, 6, 10), (7, 28, 32), (8, 29, 33)]
    assert spans_around([line(2), line(7)], 2) == [(7, 1, 9)]


def test_a_search_takes_texts_as_they_are_and_expressions_as_such() -> None:
    def asked(text: str, **given: str) -> tuple[str, bool]:
        query = parse_log_query({"find": text, **given}, ALL)
        assert query is not None
        fields = query.fields()
        return fields["grep"], fields["regex"]

    assert asked("a.b(c", case="1") == ("a.b(c", False)
    assert asked("a.b(c") == ("(?i)a\\.b\\(c", True)
    assert asked("4.2") == ("4.2", False), "no letter: a plain search is faster"
    assert asked("a.*b", regex="1", case="1") == ("a.*b", True)
    assert asked("a.*b", regex="1") == ("(?i)a.*b", True)
    assert parse_log_query({"find": ""}, ALL) is None
    query = parse_log_query({"find": "x" * 2000}, LineFilter(streams=("stderr",)))
    assert isinstance(query, LogQuery) and len(query.text) == 400 and query.fields()["streams"] == ("stderr",)


def test_counts_and_pages_of_hits() -> None:
    assert LogHits(lines=[line(1)], whole=True).count == "1"
    assert LogHits(lines=[line(1)] * 1000, whole=False).count == "1,000+"
    assert [parse_page(text) for text in ("", "2", "0", "x", "999", "9999")] == [1, 2, 1, 1, 50, 1]
