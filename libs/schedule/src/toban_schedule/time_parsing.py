"""Reads clock times, weekdays and ISO times of a rule."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from toban_schedule.spec import ScheduleError

_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def cron_of_day(text: str) -> str:
    """The cron expression of "HH:MM" or "HH:MM:SS"."""
    return _clock("daily_at", text) + " * * *"


def cron_of_week(text: str) -> str:
    """The cron expression of "mon,thu HH:MM"; a range may run over the end of a week: "sat-mon"."""
    days, _, clock = text.strip().rpartition(" ")
    numbers = sorted({number for part in days.split(",") for number in _weekdays(text, part)})
    return f"{_clock('weekly_at', clock)} * * {','.join(map(str, numbers))}"


def _weekdays(text: str, part: str) -> list[int]:
    first, _, last = part.partition("-")
    begin = _weekday(text, first)
    count = (_weekday(text, last) - begin) % 7 if last else 0
    return [(begin + step) % 7 for step in range(count + 1)]


def _weekday(text: str, day: str) -> int:
    name = day.strip().lower()
    found = [number for number, full in enumerate(_DAYS) if name in (full, full[:3])]
    if not found:
        raise ScheduleError(
            "weekly_at", f"{day.strip()!r} is not a weekday in {text!r}", 'write "mon,thu 03:00" or "mon-fri 03:00"'
        )
    return found[0]


def parse_bound(field: str, text: str) -> datetime | None:
    """The instant (UTC) of an ISO time with an offset; None for ""."""
    if not text:
        return None
    try:
        bound = datetime.fromisoformat(text)
    except ValueError:
        raise ScheduleError(field, f"{text!r} is not an ISO time", "write 2026-12-31T18:00:00Z") from None
    if bound.tzinfo is None:
        raise ScheduleError(field, f"{text!r} has no offset", "add Z for UTC, or +01:00")
    return bound.astimezone(UTC)


def _clock(field: str, text: str) -> str:
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise ScheduleError(
            field, f"{text!r} is not a time of day", 'write "HH:MM" or "HH:MM:SS" in quotes, such as "03:00"'
        )
    hour, minute, second = found[1], found[2], found[3]
    return f"{int(second or 0)} {int(minute)} {int(hour)}"
