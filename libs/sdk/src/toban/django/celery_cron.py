"""Crontabs of Celery as expressions of Toban. In Celery all five fields must match, and a range may run over the end of its field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day_of_month", 1, 31),
    ("month_of_year", 1, 12),
    ("day_of_week", 0, 6),
)
_PART = re.compile(r"(?:\*|(\w+)-(\w+))/(\d+)|\*|(\w+)(?:-(\w+))?", re.ASCII)


def convert(rule: Mapping[str, Any]) -> tuple[str, str]:
    """The expression, and a note where it is another text for the same times. Raises ValueError for what has no expression.

    >>> convert({"minute": "0", "hour": "22-2", "day_of_month": "*", "month_of_year": "*", "day_of_week": "mon-fri"})
    ('0 22,23,0,1,2 * * MON-FRI', '')
    >>> convert({"minute": "0", "hour": "8", "day_of_month": "1-7", "month_of_year": "*", "day_of_week": "1"})[0]
    '0 8 * * MON#1'
    """
    texts = {name: re.sub(r"\s+", "", str(rule[name])) for name, _, _ in _FIELDS}
    fields = {name: _field(name, texts[name], first, last) for name, first, last in _FIELDS}
    note = ""
    if not any(fields[name].startswith("*") for name in ("day_of_month", "day_of_week")):
        fields["day_of_week"] = _nth_weekdays(texts, fields)
        fields["day_of_month"] = "*"
        note = (
            f"day_of_month {texts['day_of_month']} with day_of_week {texts['day_of_week']} is {fields['day_of_week']}"
        )
    return " ".join(fields[name] for name, _, _ in _FIELDS), note


def _field(name: str, text: str, first: int, last: int) -> str:
    """The field in the notation of Toban."""
    parts = [_part(name, part, first, last) for part in text.split(",")]
    values = {value for numbers, _ in parts for value in numbers}
    return "*" if values == {*range(first, last + 1)} else ",".join(written for _, written in parts)


def _part(name: str, text: str, first: int, last: int) -> tuple[Sequence[int], str]:
    """The numbers of one part of a list, and how Toban has it. Raises ValueError."""
    found = _PART.fullmatch(text)
    if found is None or int(found[3] or 1) == 0:
        raise ValueError(f"{name} has {text!r}, which cannot be read")
    words = [word for word in (found[1] or found[4], found[2] or found[5]) if word]
    step = int(found[3] or 1)
    begin, end = (
        (_number(name, words[0], first, last), _number(name, words[-1], first, last)) if words else (first, last)
    )
    every = [*range(begin, end + 1)] if begin <= end else [*range(begin, last + 1), *range(first, end + 1)]
    if begin > end or step > last:
        return every[::step], ",".join(map(str, every[::step]))
    written = "-".join(_word(name, word) for word in words) if words else "*"
    return every[::step], written + (f"/{step}" if found[3] else "")


def _word(name: str, word: str) -> str:
    """A number, or a name of three letters."""
    if word.isdigit():
        return str(int(word))
    return word[:3].upper() if name == "day_of_week" else str(_named(word))


def _number(name: str, word: str, first: int, last: int) -> int:
    number = int(word) if word.isdigit() else _named(word)
    if not first <= number <= last:
        raise ValueError(f"{name} has {word!r}; it is from {first} to {last}")
    return number


def _named(word: str) -> int:
    """As Celery reads names in any field."""
    short = word[:3].lower()
    if short in _MONTHS:
        return _MONTHS.index(short) + 1
    return _DAYS.index(short) if short in _DAYS else -1


def _nth_weekdays(texts: Mapping[str, str], fields: Mapping[str, str]) -> str:
    """Weekdays of the first, second, … seven days of a month, which is how Celery has "the first Monday". Raises ValueError."""
    days, weekdays = (
        sorted({value for part in fields[name].split(",") for value in _part(name, part, first, last)[0]})
        for name, first, last in (_FIELDS[2], _FIELDS[4])
    )
    number, rest = divmod(days[0] - 1, 7)
    if rest or number > 3 or days != [*range(days[0], days[0] + 7)]:
        both = f"day_of_month {texts['day_of_month']} and day_of_week {texts['day_of_week']} must both match"
        raise ValueError(f"{both}, which no expression has; test the day in the task")
    return ",".join(f"{_DAYS[day].upper()}#{number + 1}" for day in weekdays)
