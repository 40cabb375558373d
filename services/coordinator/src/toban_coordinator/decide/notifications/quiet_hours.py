"""Quiet hours of notifications: whether it is that time, and when it is over."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from toban_domain.notify import QuietHours
from toban_schedule.spec import ScheduleError
from toban_schedule.zones import load_zone


def quiet_until(hours: QuietHours, now: datetime) -> datetime | None:
    """The end of the quiet hours (UTC) that `now` lies in; None outside of them. A zone that this version does not know is UTC."""
    try:
        zone = load_zone(hours.timezone)
    except ScheduleError:
        zone = UTC
    local = now.astimezone(zone)
    start, end = time.fromisoformat(hours.start), time.fromisoformat(hours.end)
    today = local.date()
    # Of the evening before, too: hours over midnight began then.
    for first in (today - timedelta(days=1), today):
        begins = datetime.combine(first, start, zone)
        ends = datetime.combine(first if start < end else first + timedelta(days=1), end, zone)
        if begins.astimezone(UTC) <= now < ends.astimezone(UTC):
            return ends.astimezone(UTC)
    return None
