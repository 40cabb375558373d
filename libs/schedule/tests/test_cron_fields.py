"""Cron expressions against a second reading: every minute is tried, by sets that the test draws itself. And H."""

from __future__ import annotations

import calendar
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toban_domain.schedule import RuleSpec
from toban_schedule import Rule, ScheduleError, problems, slots
from toban_schedule.cron import resolve

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
# minute, hour, day of month, month, day of week
LIMITS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


@st.composite
def terms(draw: st.DrawFn, field: int) -> tuple[str, set[int]]:
    """A term and the values that it means."""
    low, high = LIMITS[field]

    def named(value: int) -> str:
        if field == 3 and draw(st.booleans()):
            return draw(st.sampled_from([MONTHS[value - 1], MONTHS[value - 1].lower()]))
        if field == 4 and draw(st.booleans()):
            return draw(st.sampled_from([DAYS[value], DAYS[value].title()]))
        return str(value)

    kind = draw(st.sampled_from(["value", "range", "step of all", "step of range", "step from"]))
    begin = draw(st.integers(low, high))
    end = draw(st.integers(begin, high))
    step = draw(st.integers(1, high))
    if kind == "value":
        return named(begin), {begin}
    if kind == "range":
        return f"{named(begin)}-{named(end)}", set(range(begin, end + 1))
    if kind == "step of all":
        # 7 is Sunday too: a step over all days of the week would count it.
        return f"{low}-{high}/{step}", set(range(low, high + 1, step))
    if kind == "step from" and field != 4:
        return f"{begin}/{step}", set(range(begin, high + 1, step))
    return f"{named(begin)}-{named(end)}/{step}", set(range(begin, end + 1, step))


@st.composite
def fields(draw: st.DrawFn, field: int) -> tuple[str, set[int] | None]:
    """A whole field; None means every value."""
    if draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(["*", "?"] if field in (2, 4) else ["*"])), None
    drawn = draw(st.lists(terms(field), min_size=1, max_size=3))
    return ",".join(text for text, _ in drawn), set().union(*(values for _, values in drawn))


def matches(day: date, days: set[int] | None, months: set[int] | None, weekdays: set[int] | None) -> bool:
    if months is not None and day.month not in months:
        return False
    by_day, by_weekday = days is None or day.day in days, weekdays is None or day.isoweekday() % 7 in weekdays
    # Both given: one of them is enough, as in every cron.
    return by_day and by_weekday if days is None or weekdays is None else by_day or by_weekday


@settings(max_examples=150, deadline=None)
@given(
    drawn=st.tuples(*(fields(n) for n in range(5))),
    start=st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    seconds=st.one_of(st.none(), st.sets(st.integers(0, 59), min_size=1, max_size=3)),
)
def test_expressions_agree_with_a_search_through_every_minute(
    drawn: list[tuple[str, set[int] | None]], start: datetime, seconds: set[int] | None
) -> None:
    start = start.replace(second=0, microsecond=0)
    text = " ".join(field for field, _ in drawn)
    if seconds is not None:
        text = f"{','.join(map(str, sorted(seconds)))} {text}"
    minutes, hours, days, months, weekdays = (values for _, values in drawn)
    until = start + timedelta(days=70)
    found = (
        datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=UTC)
        for day in ((start + timedelta(days=n)).date() for n in range(72))
        if matches(day, days, months, weekdays)
        for hour in sorted(hours if hours is not None else range(24))
        for minute in sorted(minutes if minutes is not None else range(60))
        for second in sorted(seconds or {0})
    )
    expected = list(islice((at for at in found if start < at <= until), 1500))
    try:
        rule = Rule.of(RuleSpec(cron=text))
    except ScheduleError as error:
        assert "never fires" in error.message and expected == []
        return
    assert slots(rule, start, until, 1500) == expected


@pytest.mark.parametrize("year", [2026, 2027, 2028])
@pytest.mark.parametrize("day", [1, 2, 15, 28, 29, 30, 31])
def test_the_nearest_weekday_is_of_the_same_month(year: int, day: int) -> None:
    rule = Rule.of(RuleSpec(cron=f"0 0 {day}W * *"))
    found = [
        slot.date()
        for slot in slots(rule, datetime(year - 1, 12, 31, 12, tzinfo=UTC), datetime(year, 12, 31, 12, tzinfo=UTC), 99)
    ]
    months = [month for month in range(1, 13) if day <= calendar.monthrange(year, month)[1]]
    assert [at.month for at in found] == months
    for at in found:
        wanted = date(year, at.month, day)
        weekdays = [
            d
            for d in (date(year, at.month, n) for n in range(1, calendar.monthrange(year, at.month)[1] + 1))
            if d.weekday() < 5
        ]
        assert abs(at - wanted) == min(abs(d - wanted) for d in weekdays)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.text(st.characters(categories=["Ll", "Nd"]), min_size=1, max_size=20),
    part=st.sampled_from(["H", "H/15", "H(10-29)", "H(10-29)/7", "H/59", "5,H(30-40)"]),
)
def test_a_hash_stays_within_its_bounds(seed: str, part: str) -> None:
    minute = resolve(f"{part} * * * *", seed).split()[0]
    rule = Rule.of(RuleSpec(cron=f"{part} * * * *", seed=seed))
    begin = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
    found = [slot.minute for slot in slots(rule, begin, begin + timedelta(hours=1), 99)]
    assert found == [
        slot.minute
        for slot in slots(Rule.of(RuleSpec(cron=f"{minute} * * * *")), begin, begin + timedelta(hours=1), 99)
    ]
    if "(10-29)" in part:
        assert all(10 <= at <= 29 for at in found)
    steps = {"H/15": 15, "H(10-29)/7": 7, "H/59": 59}
    if part in steps:
        assert {right - left for left, right in pairwise(found)} <= {steps[part]}
    assert (
        len(found)
        in {"H": [1], "H/15": [4], "H(10-29)": [1], "H(10-29)/7": [2, 3], "H/59": [1, 2], "5,H(30-40)": [2]}[part]
    )


def test_a_hash_spreads_names_and_differs_by_field() -> None:
    drawn = [resolve("H H H H H", f"job-{n}").split() for n in range(3000)]
    for field, size in enumerate((60, 24, 28, 12, 7)):
        counts = Counter(int(parts[field]) for parts in drawn)
        assert len(counts) == size and max(counts.values()) < 2 * 3000 / size
    assert all(1 <= int(parts[2]) <= 28 for parts in drawn)
    assert sum(parts[0] == parts[1] for parts in drawn) < 150


def test_a_hash_is_the_same_in_every_process() -> None:
    code = "from toban_schedule.cron import resolve; print(resolve('H H H H H', 'backup'))"
    environment = {"PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == resolve("H H H H H", "backup") == "15 10 28 10 5"


def test_a_rule_with_a_hash_is_checked_under_its_name() -> None:
    assert problems(RuleSpec(cron="H H * * *", seed="a")) == []
    assert Rule.of(RuleSpec(cron="H * * * *", seed="a")) != Rule.of(RuleSpec(cron="H * * * *", seed="b"))
