"""The rules of schedules as messages."""

from __future__ import annotations

import pytest

from toban_admin_web.decide.schedule_text import rule_message, weekly_rule
from toban_admin_web.decide.translations import Message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"interval_seconds": 5}, ("rule.every.s", {"n": "5"})),
        ({"interval_seconds": 90}, ("rule.every.s", {"n": "90"})),
        ({"every_n_minutes": 60}, ("rule.every.h", {"n": "1"})),
        ({"interval_seconds": 172_800}, ("rule.every.d", {"n": "2"})),
        ({"hourly_at_minute": 7}, ("rule.hourly", {"minute": "07"})),
        ({"daily_at": "03:00"}, ("rule.daily", {"time": "03:00"})),
        ({"cron": "0 3 * * *"}, ("rule.cron", {"cron": "0 3 * * *"})),
        ({"moon": "full"}, None),
    ],
)
def test_message_of_a_rule(spec: dict[str, object], message: Message | None) -> None:
    assert rule_message(spec) == message


def test_weekly_rules() -> None:
    assert weekly_rule({"weekly_at": "mon, Thursday 03:00"}) == (("mon", "thu"), "03:00")
    assert weekly_rule({"weekly_at": "mon-fri 09:00"}) == (("mon", "tue", "wed", "thu", "fri"), "09:00")
    assert weekly_rule({"weekly_at": "sat-mon,wed 09:00"}) == (("mon", "wed", "sat", "sun"), "09:00")
    assert weekly_rule({"weekly_at": "mon-never 09:00"}) is None
    assert weekly_rule({"weekly_at": "mon,THU 03:00"}) == (("mon", "thu"), "03:00")
    assert weekly_rule({"weekly_at": "someday 03:00"}) is None and weekly_rule({}) is None
