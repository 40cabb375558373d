"""The slots of each minute, against the slots one by one."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_domain.schedule import RuleSpec
from toban_schedule import Rule, minute_counts, slots

BEGIN = datetime(2026, 10, 24, 18, tzinfo=UTC)
RULES: list[dict[str, Any]] = [
    {"interval_seconds": 1},
    {"interval_seconds": 7},
    {"interval_seconds": 90},
    {"interval_seconds": 45, "start": "2026-10-24T19:00:00Z", "end": "2026-10-24T20:00:00Z"},
    {"every_n_minutes": 7},
    {"hourly_at_minute": 20, "timezone": "Asia/Kathmandu"},
    {"daily_at": "18:00"},
    {"daily_at": "02:30", "timezone": "Europe/Berlin", "fold": "both"},
    {"weekly_at": "sun 03:00:30", "timezone": "Asia/Tokyo"},
    {"cron": "*/5 * * * *", "timezone": "Europe/Berlin"},
    {"cron": "*/10 30 * * * *"},
    {"cron": "H H(2-4) * * *", "seed": "nightly"},
    {"cron": "0 0 1 1 *"},
    {"daily_at": "18:00:30", "start": "2026-10-24T18:00:40Z"},
    {"daily_at": "18:00", "start": "2027-01-01T00:00:00Z"},
]


@pytest.mark.parametrize("given", RULES, ids=str)
def test_each_minute_has_the_slots_of_its_rule(given: dict[str, Any]) -> None:
    rule = Rule.of(RuleSpec(**given))
    last = BEGIN + timedelta(days=1) - timedelta(microseconds=1)
    found = slots(rule, BEGIN - timedelta(microseconds=1), last, 100_000)
    expected = Counter((slot - BEGIN) // timedelta(minutes=1) for slot in found)
    assert minute_counts(rule, BEGIN, 1440) == dict(expected)
