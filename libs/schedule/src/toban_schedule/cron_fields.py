"""One field of a cron expression in the form that cronsim reads, or the error that names what is wrong with it."""

from __future__ import annotations

import re

from cronsim import CronSimError
from cronsim.cronsim import SYMBOLIC_DAYS, SYMBOLIC_MONTHS, Field

from toban_schedule.spec import ScheduleError

NAMES = ("second", "minute", "hour", "day of month", "month", "day of week")
_ALLOWED = (
    "0-59",
    "0-59",
    "0-23",
    "1-31, L, LW, 15W or ?",
    "1-12 or JAN-DEC",
    "0-7 or SUN-SAT, with #n or L, or ?",
)
# Where a range that goes over the end of the field starts again. A week has seven days, although 7 is Sunday too.
_BOUNDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NEAR = re.compile(r"([1-9]|[12][0-9]|3[01])W")
_RANGE = re.compile(r"(\w+)-(\w+)(?:/(\d+))?")
# A single day, which has nothing to step through: L, LW, 15W, 5L, MON#1.
_ONE_DAY_STEP = re.compile(r"(L|LW|\d+W|\w+L|\w+#\d+)/.*")


def plain(text: str, part: str, index: int) -> str:
    """Field `index` (0 = seconds) of the expression `text` as cronsim and `split_near` read it; raises ScheduleError."""
    if part == "?" and index in (Field.DAY, Field.DOW):
        return "*"
    field = Field(index)
    # A week may end with Sunday: FRI-SUN.
    written = re.sub(r"\b(MON|TUE|WED|THU|FRI|SAT|[1-6])-SUN\b", r"\1-7", part) if field == Field.DOW else part
    rest = split_near(written)[0] if field == Field.DAY else written
    try:
        if rest or not written:
            if any(_stepped_day(term, field) for term in rest.split(",")):
                raise ValueError("a step on one day")
            field.parse(rest)
        return ",".join(_lone(term, field) for term in written.split(","))
    except (CronSimError, ValueError, AssertionError, TypeError):
        raise _refused(text, part, field) from None


def split_near(part: str) -> tuple[str, frozenset[int]]:
    """The terms of a day of month that cronsim knows, and the days whose nearest weekday is meant."""
    terms = part.split(",")
    near = [found for term in terms if (found := _NEAR.fullmatch(term))]
    if not near:
        return part, frozenset()
    rest = [term for term in terms if not _NEAR.fullmatch(term)]
    return ",".join(rest), frozenset(int(found[1]) for found in near)


def _lone(term: str, field: Field) -> str:
    """5-5/3 is 5: cronsim would read it as 5/3, which goes on to the end of the range."""
    found = _RANGE.fullmatch(term)
    return found[1] if found and found[3] and field.int(found[1]) == field.int(found[2]) else term


def _refused(text: str, part: str, field: Field) -> ScheduleError:
    what = f"{part!r} is not a {NAMES[field]} in {text!r}"
    for term in part.split(","):
        if day := _stepped_day(term, field):
            why = f"{day} is one day, so a step has nothing to count"
            return ScheduleError("cron", f"{what}: {why}", f"write {day}, or a range with the step")
        if wrapped := _in_order(term, field):
            found = _RANGE.fullmatch(term)
            assert found is not None
            why = f"the start {found[1]} of the range is greater than its end {found[2]}"
            return ScheduleError("cron", f"{what}: {why}", f"a range does not wrap around: write {wrapped}")
    return ScheduleError("cron", what, f"use {_ALLOWED[field]}, with * , - / or H")


def _stepped_day(term: str, field: Field) -> str:
    """The L of L/2, "" when the term is not one day with a step."""
    found = _ONE_DAY_STEP.fullmatch(term) if field in (Field.DAY, Field.DOW) else None
    return found[1] if found else ""


def _in_order(term: str, field: Field) -> str:
    """The terms that a backward range may stand for, such as 22-23,0-2 for 22-2; "" when it is not a backward range."""
    found = _RANGE.fullmatch(term)
    if found is None or found[3] == "0":
        return ""
    try:
        start, end = field.int(found[1]), field.int(found[2])
    except CronSimError:
        return ""
    low, high = _BOUNDS[field]
    if start <= end:
        return ""
    if start > high:
        return f"{low}-{end}" + (f"/{found[3]}" if found[3] else "")
    if found[3]:
        run = [*range(start, high + 1), *range(low, end + 1)][:: int(found[3])]
        return ",".join(_named(value, found[1], field) for value in run)
    return f"{_span(start, high, found[1], field)},{_span(low, end, found[2], field)}"


def _span(first: int, last: int, given: str, field: Field) -> str:
    ends = [_named(value, given, field) for value in dict.fromkeys((first, last))]
    return "-".join(ends)


def _named(value: int, given: str, field: Field) -> str:
    """The value as a number, or by its name where the expression gives a name."""
    if given.isdigit():
        return str(value)
    return SYMBOLIC_DAYS[value] if field == Field.DOW else SYMBOLIC_MONTHS[value - 1]
