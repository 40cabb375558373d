"""Spans of time: one reading for --at, --since and --every."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from toban_cli.schedule_options import read_every
from toban_cli.since import read_since
from toban_cli.spans import span_seconds
from toban_cli.times import read_at
from toban_domain.errors import TobanError

NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("0s", 0),
        ("5", None),
        ("m", None),
        ("1.5h", None),
        ("", None),
    ],
)
def test_spans(text: str, seconds: int | None) -> None:
    assert span_seconds(text) == seconds


def test_endless_numbers_are_out_of_range_everywhere() -> None:
    endless = "9" * 6000 + "s"
    with pytest.raises(TobanError, match="too far ahead"):
        read_at(f"+{endless}", NOW)
    with pytest.raises(TobanError, match="too long ago"):
        read_since("--since", endless, NOW)
    with pytest.raises(TobanError, match="out of range"):
        read_every(endless)
