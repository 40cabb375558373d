"""Lists mark schedules that a change of the clocks touches soon."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from toban_admin_web.decide.api_models import Schedule
from toban_admin_web.decide.clock_changes import near_clock_change

BERLIN = {"daily_at": "02:30", "timezone": "Europe/Berlin"}


def schedule(spec: Any, *, enabled: bool = True) -> Schedule:
    rest = dict.fromkeys(Schedule.model_fields, None) | {"name": "nightly", "enabled": enabled, "spec": spec}
    return Schedule.model_construct(**rest)


def test_a_change_that_is_near_is_told() -> None:
    found = near_clock_change(schedule(BERLIN), datetime(2027, 3, 1, tzinfo=UTC))
    assert found.startswith("2027-03-28: 02:30 does not exist")


@pytest.mark.parametrize(
    ("spec", "now"),
    [
        (BERLIN, datetime(2027, 2, 1, tzinfo=UTC)),
        ({**BERLIN, "daily_at": "04:30"}, datetime(2027, 3, 20, tzinfo=UTC)),
        ({"daily_at": "02:30"}, datetime(2027, 3, 20, tzinfo=UTC)),
        ({"every_n_minutes": 5}, datetime(2027, 3, 20, tzinfo=UTC)),
        ({"cron": "no"}, datetime(2027, 3, 20, tzinfo=UTC)),
        (None, datetime(2027, 3, 20, tzinfo=UTC)),
    ],
)
def test_others_are_not_marked(spec: Any, now: datetime) -> None:
    assert near_clock_change(schedule(spec), now) == ""


def test_a_disabled_schedule_is_not_marked() -> None:
    assert near_clock_change(schedule(BERLIN, enabled=False), datetime(2027, 3, 20, tzinfo=UTC)) == ""
