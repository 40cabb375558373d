"""OnCalendar= to cron: lists, ranges, repetitions, weekdays, years, days from the end of the month, zones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from typing import Any

from toban_schedule.spec import ScheduleError
from toban_schedule.zones import load_zone

_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_SHORT = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    **dict.fromkeys(("quarterly",), "*-01,04,07,10-01 00:00:00"),
    **dict.fromkeys(("semiannually", "semi-annually", "biannually", "bi-annually"), "*-01,07-01 00:00:00"),
    **dict.fromkeys(("yearly", "annually", "anually"), "*-01-01 00:00:00"),
}
_CHAIN = r"[\d*.,/]+"
_DATE = re.compile(rf"(?:({_CHAIN})-)?({_CHAIN})([-~])({_CHAIN})")
_TIME = re.compile(rf"({_CHAIN}):({_CHAIN})(?::({_CHAIN}))?")
_ITEM = re.compile(r"(\d+|\*)(?:\.0+)?(?:\.\.(\d+)(?:\.0+)?)?(?:/(\d+)(?:\.0+)?)?")
_YEARS = (1970, 2199)


class CalendarError(ValueError):
    """No schedule has these times: why, and what to do."""


def read_calendar(text: str, default_zone: str) -> dict[str, Any]:
    """The keys of a schedule with the same times; raises CalendarError."""
    words = text.replace("T", " ").split() if re.match(r"\d{4}-\S+T\d", text) else text.split()
    zone, words = _zone(words, default_zone)
    if len(words) == 1 and words[0].lower() in _SHORT:
        words = _SHORT[words[0].lower()].split()
    weekdays, words = _weekdays(words)
    date, time = _date_and_time(text, words)
    seconds, minutes, hours = (
        _values(part, low, high, text) for part, low, high in ((time[2], 0, 59), (time[1], 0, 59), (time[0], 0, 23))
    )
    months = _values(date[1], 1, 12, text)
    day, weekday = _days(date[2], date[3], weekdays, text)
    fields = [_text(minutes, 0, 59), _text(hours, 0, 23), day, _text(months, 1, 12), weekday]
    expression = " ".join(fields if seconds == {0} else [_text(seconds, 0, 59), *fields])
    schedule: dict[str, Any] = {"cron": expression, "timezone": zone, **_years(date[0], zone, text)}
    if zone != "UTC" and len(hours) < 24:
        # systemd leaves out a local time that does not exist.
        schedule["dst"] = {"gap": "skip"}
    return schedule


def _zone(words: list[str], default: str) -> tuple[str, list[str]]:
    last = words[-1] if len(words) > 1 else ""
    if last.upper() == "UTC":
        return "UTC", words[:-1]
    if (last and "/" in last and last[0].isalpha()) or (last.isalpha() and last.lower() not in _SHORT):
        try:
            load_zone(last)
        except ScheduleError as error:
            raise CalendarError(f"there is no zone {last!r} ({error.hint})") from None
        return last, words[:-1]
    return default, words


def _weekdays(words: list[str]) -> tuple[set[int] | None, list[str]]:
    if not words or not words[0][0].isalpha():
        return None, words
    found: set[int] = set()
    for item in words[0].rstrip(",").split(","):
        ends = [_weekday(name) for name in re.split(r"\.\.|-", item)]
        # A week begins on Monday.
        first, last = ((number - 1) % 7 for number in (ends[0], ends[-1]))
        if len(ends) > 2 or first > last:
            raise CalendarError(f"{item!r} is not a range of weekdays, and systemd refuses it too")
        found |= {(number + 1) % 7 for number in range(first, last + 1)}
    return found, words[1:]


def _weekday(name: str) -> int:
    for number, full in enumerate(_DAYS):
        if name.lower() in (full, full[:3]):
            return number
    raise CalendarError(f"{name!r} is not a weekday; write Mon to Sun")


def _date_and_time(text: str, words: list[str]) -> tuple[tuple[str, str, str, str], tuple[str, str, str]]:
    date, time = ("*", "*", "-", "*"), ("0", "0", "0")
    for word in words:
        if found := _DATE.fullmatch(word):
            date = (found[1] or "*", found[2], found[3], found[4])
        elif found := _TIME.fullmatch(word):
            time = (found[1], found[2], found[3] or "0")
        elif word.startswith("@"):
            raise CalendarError(f"{text!r} is one point in time; start the job with `toban run start --at`")
        else:
            raise CalendarError(f"{word!r} is neither a date nor a time of systemd")
    if not words and not text.strip():
        raise CalendarError("the calendar is empty")
    return date, time


def _values(chain: str, low: int, high: int, text: str) -> set[int]:
    found: set[int] = set()
    for item in chain.split(","):
        parts = _ITEM.fullmatch(item)
        if parts is None or (parts[1] == "*" and item != "*"):
            raise CalendarError(f"{item!r} in {text!r} has a form that no schedule has, such as a fraction of a second")
        first = low if parts[1] == "*" else int(parts[1])
        last = int(parts[2]) if parts[2] else high if parts[3] or parts[1] == "*" else first
        step = int(parts[3] or 1)
        if not low <= first <= last <= high or step == 0:
            raise CalendarError(f"{item!r} in {text!r} is not within {low} and {high}")
        if parts[3] and not parts[2] and first + step > high:
            raise CalendarError(f"{item!r} in {text!r} repeats nothing up to {high}, and systemd refuses it too")
        found |= set(range(first, last + 1, step))
    return found


def _days(mark: str, chain: str, weekdays: set[int] | None, text: str) -> tuple[str, str]:
    """Day of month and day of week. systemd wants both to match; cron only where one of the fields begins with *."""
    if weekdays == set(range(7)):
        weekdays = None
    names = sorted(weekdays or ())
    if mark == "~":
        if chain.lstrip("0") == "1" and weekdays is None:
            return "L", "*"
        if re.fullmatch(r"0*7/1", chain) and weekdays is not None:
            return "*", ",".join(f"{day}L" for day in names)
        raise CalendarError(
            f"days from the end of the month in {text!r}: a schedule has only the last day (L) and last weekdays (1L)"
        )
    days = _values(chain, 1, 31, text)
    day = _text(days, 1, 31)
    if weekdays is None or day.startswith("*"):
        return day, _text(set(names), 0, 6) if weekdays is not None else "*"
    weeks = [week for week in range(1, 5) if days == set(range(7 * week - 6, 7 * week + 1))]
    if not weeks:
        raise CalendarError(
            f"{text!r} restricts weekdays and days of the month, where cron would run at either; write the schedule by hand"
        )
    return "*", ",".join(f"{number}#{weeks[0]}" for number in names)


def _text(values: Iterable[int], low: int, high: int) -> str:
    """The shortest usual way to write the values in cron."""
    run = sorted(values)
    if len(run) == high - low + 1:
        return "*"
    step = run[1] - run[0] if len(run) > 1 else 0
    even = len(run) > 2 and all(after - before == step for before, after in pairwise(run))
    if even and step == 1:
        return f"{run[0]}-{run[-1]}"
    if even and run[-1] + step > high:
        return f"*/{step}" if run[0] == low else f"{run[0]}-{high}/{step}"
    return ",".join(map(str, run))


def _years(chain: str, zone: str, text: str) -> dict[str, str]:
    if chain == "*":
        return {}
    full = re.sub(r"(?<![\d/])\d{2}(?!\d)", lambda year: f"{'20' if int(year[0]) < 70 else '19'}{year[0]}", chain)
    years = sorted(_values(full, *_YEARS, text))
    if years[-1] - years[0] + 1 != len(years):
        raise CalendarError(
            f"the years in {text!r} are not one range; write a schedule for each with `start` and `end`"
        )
    zoned = load_zone(zone)
    first, behind = (datetime(year, 1, 1, tzinfo=zoned).isoformat() for year in (years[0], years[-1] + 1))
    return {"start": first, "end": behind}
