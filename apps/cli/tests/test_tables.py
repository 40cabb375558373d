"""Tables fit terminals, and are whole elsewhere."""

from __future__ import annotations

import pytest

from toban_cli.tables import render

HEADERS = ["RUN", "JOB", "STATE", "LAST LINE"]
ROWS = [["12", "a-job-with-a-long-name", "SUCCEEDED", "x" * 90], ["13", "b", "FAILED", "short"]]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_table_never_wraps_on_a_terminal(width: int) -> None:
    lines = render(HEADERS, ROWS, loose=["JOB", "LAST LINE"], width=width, colour=False).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert lines[1].endswith("…")
    assert "SUCCEEDED" in lines[1]


def test_names_are_whole_while_something_else_can_give_way() -> None:
    headers = ["NAME", "JOB", "STATUS", "RULE"]
    rows = [["certificate-expiry-daily", "certificate-expiry", "active", "daily at 07:30 Europe/Berlin"]]
    for width in (50, 80):
        shown = render(headers, rows, loose=["JOB", "RULE"], names=["NAME"], width=width, colour=False)
        assert "certificate-expiry-daily  " in shown and max(map(len, shown.splitlines())) <= width
    narrow = render(headers, rows, loose=["JOB", "RULE"], names=["NAME"], width=30, colour=False)
    assert max(map(len, narrow.splitlines())) <= 30 and "certificat…" in narrow
    hopeless = render(headers, rows, loose=["JOB", "RULE"], names=["NAME"], width=20, colour=False)
    assert "certificate-expiry-daily" in hopeless, "lines are too long whatever is cut"


def test_nothing_is_cut_off_a_terminal() -> None:
    assert render(HEADERS, ROWS, loose=["JOB", "LAST LINE"], width=None, colour=False).splitlines() == [
        "RUN  JOB                     STATE      LAST LINE",
        "12   a-job-with-a-long-name  SUCCEEDED  " + "x" * 90,
        "13   b                       FAILED     short",
    ]


def test_states_have_colours_on_a_terminal_only() -> None:
    assert "\x1b[31mFAILED" in render(HEADERS, ROWS, loose=["LAST LINE"], width=80, colour=True)
    assert "\x1b" not in render(HEADERS, ROWS, loose=["LAST LINE"], width=80, colour=False)


def test_jobs_cannot_draw_on_the_terminal() -> None:
    rows = [["12", "a", "FAILED", "\x1b[2J\x07red\nnext\u202etxt"]]
    text = render(HEADERS, rows, loose=[], width=None, colour=False)
    assert text.splitlines()[1:] == ["12   a    FAILED  \ufffd[2J\ufffdred next\ufffdtxt"]


def test_wide_characters_take_two_columns() -> None:
    rows = [["1", "当番", "x", "a"], ["2", "e\u0301", "x", "b"], ["3", "long name", "x", "c"]]
    lines = render(HEADERS, rows, loose=["JOB"], width=None, colour=False).splitlines()
    assert lines[1:3] == ["1    当番       x      a", "2    e\u0301          x      b"]
    assert render(["N"], [["当番当番"]], loose=["N"], width=6, colour=False) == "N\n当番…"
