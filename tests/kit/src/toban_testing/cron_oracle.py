"""Cron's interpretation of its time fields, implemented independently of the importer, minute by minute."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@every_minute": "* * * * *",
    "@quarterly": "0 0 1 */3 *",
    "@semi-annually": "0 0 1 */6 *",
    "@bi-annually": "0 0 1 */6 *",
}
PERIODS = {"@every_second": 1, "@300": 300, "@90": 90, "@every 5m": 300, "@every 1h30m": 5400, "@every 90s": 90}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}


def walls(fields: list[str], after: datetime, drawn: list[str]) -> Iterator[datetime]:
    """Matching local times from the minute after `after` on; `drawn` are the fields whose random ranges have been resolved."""
    sets = [_values(text, index, drawn[index]) for index, text in enumerate(fields)]
    minutes, hours, days, months, weekdays = sets
    either = not (fields[2].startswith("*") or fields[4].startswith("*"))
    day = after.replace(hour=0, minute=0, second=0, microsecond=0)
    while day.year < after.year + 60:
        in_days, in_weekdays = day.day in days, (day.weekday() + 1) % 7 in weekdays
        if day.month in months and (in_days or in_weekdays if either else in_days and in_weekdays):
            for hour in sorted(hours):
                for minute in sorted(minutes):
                    wall = day.replace(hour=hour, minute=minute)
                    if wall > after:
                        yield wall
        day += timedelta(days=1)


def _values(text: str, index: int, drawn: str) -> set[int]:
    if "~" in text:
        _within(text, index, drawn)
        text = drawn
    found: set[int] = set()
    for item in text.split(","):
        found |= _item(item, index)
    return found


def _item(item: str, index: int) -> set[int]:
    low, high = _BOUNDS[index]
    body, _, step_text = item.partition("/")
    step = int(step_text or 1)
    if body == "*":
        # The day of week has eight values in cron: 0 and 7 are both Sunday.
        return {value % 7 if index == 4 else value for value in range(low, (7 if index == 4 else high) + 1, step)}
    first_text, dash, last_text = body.partition("-")
    first = _number(first_text, index)
    last = _number(last_text, index) if dash else ((7 if index == 4 else high) if step_text else first)
    run = list(range(first, last + 1)) if first <= last else [*range(first, high + 1), *range(low, last + 1)]
    return {value % 7 if index == 4 else value for value in run[::step]}


def _number(text: str, index: int) -> int:
    if text.isdigit():
        return int(text)
    return (_MONTHS if index == 3 else _DAYS)[text[:3].lower()]


def _within(text: str, index: int, drawn: str) -> None:
    low, high = _BOUNDS[index]
    found = re.fullmatch(r"(\d*)~(\d*)(?:/(\d+))?", text)
    assert found, text
    first, last = int(found[1] or low), int(found[2] or high)
    if found[3]:
        offset, rest = drawn.split("-")
        assert first <= int(offset) < first + int(found[3])
        assert rest == f"{last}/{found[3]}"
    else:
        assert first <= int(drawn) <= last
