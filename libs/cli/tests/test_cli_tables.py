"""Tables fit terminals, and are whole elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from toban_cli.formatting import age, brief, day, duration, local, moment
from toban_cli.tables import render

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HEADERS = ["RUN", "JOB", "STATE", "LAST LINE"]
ROWS = [["12", "a-job-with-a-long-name", "SUCCEEDED", "x" * 90], ["13", "b", "FAILED", "short"]]


def stamp(seconds: float) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(NOW + timedelta(seconds=seconds))
    return found


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


def test_nothing_is_cut_where_nobody_looks() -> None:
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


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.05, "0.05s"), (5, "5.0s"), (72, "1m 12s"), (3_660, "1h 01m"), (200_000, "2d 07h"), (-1, "0.00s")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "now"), (-5, "5s ago"), (-119, "119s ago"), (-120, "2m ago"), (3_600, "in 1h"), (-86_400 * 3, "3d ago")],
)
def test_ages(seconds: float, words: str) -> None:
    assert age(stamp(seconds), NOW) == words


def test_times(monkeypatch: pytest.MonkeyPatch) -> None:
    at = (NOW - timedelta(seconds=5)).astimezone()
    assert local(stamp(-5), NOW) == f"{at:%Y-%m-%d %H:%M:%S} (5s ago)"
    assert brief(stamp(-5), NOW) == f"{at:%H:%M:%S} (5s ago)"
    assert brief(stamp(86_400 * 3), NOW) == f"{at + timedelta(days=3, seconds=5):%m-%d %H:%M} (in 3d)"
    assert moment(stamp(-5), NOW) == f"{at:%H:%M:%S}"
    assert moment(stamp(-86_400 * 3), NOW) == f"{at - timedelta(days=3, seconds=-5):%Y-%m-%d %H:%M:%S}"
    assert day(stamp(86_400 * 3), NOW) == f"{at + timedelta(days=3, seconds=5):%Y-%m-%d} (in 3d)"
    assert moment(Timestamp(), NOW) == day(Timestamp(), NOW) == "-"
    assert local(Timestamp(), NOW) == brief(Timestamp(), NOW) == "-"
