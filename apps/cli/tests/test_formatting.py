"""Durations, ages, times, counts and keys as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from toban_cli.formatting import age, brief, count, day, duration, given_key, local, moment, plain_number

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def stamp(seconds: float) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(NOW + timedelta(seconds=seconds))
    return found


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


def test_words() -> None:
    assert [count(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert [plain_number(number) for number in (31_536_000.0, 0.5, 60, -5.0, 1e30)] == [
        "31536000",
        "0.5",
        "60",
        "-5",
        "1e+30",
    ]
    assert given_key("cli-0b9a4f6e-5a62-4c7c-9d3c-2f1e8a7b6c5d") == ""
    assert given_key("cli-mine") == "cli-mine"
