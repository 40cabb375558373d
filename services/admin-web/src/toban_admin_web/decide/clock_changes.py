"""Changes of the clocks that soon touch a schedule, for lists."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from toban_admin_web.decide.api_models import Schedule
from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.decide.month_calendar import rule_of
from toban_schedule.dst_preview import next_dst_change

AHEAD = timedelta(days=30)


def near_clock_change(schedule: Schedule, now: datetime) -> str:
    """The next one within `AHEAD`, and what the rule does then; "" without one, and for a schedule that is disabled."""
    if not schedule.enabled:
        return ""
    keys = ("cron", "daily_at", "weekly_at", "timezone", "dst", "start", "end")
    spec = {key: value for key, value in as_object(schedule.spec).items() if key in keys}
    return _near(json.dumps(spec, sort_keys=True), schedule.name, now.astimezone(UTC).date())


@lru_cache(maxsize=1024)
def _near(spec: str, name: str, today: date) -> str:
    """A page asks for many schedules every few seconds, and the answer stays for a day."""
    rule = rule_of(json.loads(spec), name)
    if rule is None:
        return ""
    found = next_dst_change(rule, datetime(today.year, today.month, today.day, tzinfo=UTC))
    return found if found and date.fromisoformat(found[:10]) <= today + AHEAD else ""
