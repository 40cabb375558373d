"""Durations and ages as messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from toban_admin_web.decide.durations import age, duration, elapsed
from toban_admin_web.decide.translations import Message

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (-1, ("duration.s", {"s": "0.00"})),
        (0.421, ("duration.s", {"s": "0.42"})),
        (59.94, ("duration.s", {"s": "59.9"})),
        (192, ("duration.ms", {"m": "3", "s": "12"})),
        (7500, ("duration.hm", {"h": "2", "m": "05"})),
        (3 * 86_400 + 4 * 3600, ("duration.dh", {"d": "3", "h": "04"})),
    ],
)
def test_durations(seconds: float, message: Message) -> None:
    assert duration(seconds) == message


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (0.4, ("age.now", {})),
        (5, ("age.ago.s", {"n": "5"})),
        (90, ("age.ago.s", {"n": "90"})),
        (130, ("age.ago.m", {"n": "2"})),
        (-3700, ("age.in.h", {"n": "1"})),
        (-200_000, ("age.in.d", {"n": "2"})),
    ],
)
def test_ages(seconds: float, message: Message) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == message


def test_elapsed_until_now_and_before_the_start() -> None:
    assert elapsed(None, None, NOW) is None
    assert elapsed(NOW - timedelta(seconds=5), None, NOW) == ("duration.s", {"s": "5.0"})
