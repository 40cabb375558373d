"""Cron expressions against a second reading: every minute is tried, by sets that the test draws itself. And H."""

from __future__ import annotations

import calendar
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.schedule import RuleSpec
from toban_schedule import Rule, ScheduleError, problems, slots
from toban_schedule.cron import parse_cron, resolve

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


@pytest.mark.seed(51, 215)
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
    plain = parse_cron(text).plain()
    if plain is None:
        assert days is not None and weekdays is not None
        return
    assert [len(plain.hours), len(plain.minutes)] == [len(hours or range(24)), len(minutes or range(60))]
    for one in ((start + timedelta(days=n)).date() for n in range(72)):
        by_day = not plain.days or one.day in plain.days
        by_weekday = not plain.weekdays or one.isoweekday() % 7 in plain.weekdays
        assert (one.month in plain.months and by_day and by_weekday) == matches(one, days, months, weekdays)


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
    code = "from toban_schedule.cron import parse_cron, resolve; print(resolve('H H H H H', 'backup'))"
    environment = {"PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == resolve("H H H H H", "backup") == "15 10 28 10 5"


def test_a_rule_with_a_hash_is_checked_under_its_name() -> None:
    assert problems(RuleSpec(cron="H H * * *", seed="a")) == []
    assert Rule.of(RuleSpec(cron="H * * * *", seed="a")) != Rule.of(RuleSpec(cron="H * * * *", seed="b"))


@pytest.mark.parametrize(
    ("cron", "why", "remedy"),
    [
        ("0 22-2 * * *", "'22-2' is not a hour in '0 22-2 * * *': the start 22 of the range is greater", "22-23,0-2"),
        ("50-10/15 * * * *", "the start 50 of the range is greater than its end 10", "50,5"),
        ("1,30-29 * * * *", "the start 30 of the range is greater than its end 29", "30-59,0-29"),
        ("0 23-0 * * *", "the start 23 of the range is greater than its end 0", "23,0"),
        ("0 0 25-5 * *", "the start 25 of the range is greater than its end 5", "25-31,1-5"),
        ("0 0 * nov-feb *", "the start NOV of the range is greater than its end FEB", "NOV-DEC,JAN-FEB"),
        ("0 0 * 11-2 *", "the start 11 of the range is greater than its end 2", "11-12,1-2"),
        ("0 0 * * 5-2", "the start 5 of the range is greater than its end 2", "5-6,0-2"),
        ("0 0 * * SAT-FRI", "the start SAT of the range is greater than its end FRI", "SAT,SUN-FRI"),
        ("0 0 * * fri-tue/2", "the start FRI of the range is greater than its end TUE", "FRI,SUN,TUE"),
        ("0 0 * * 7-2", "the start 7 of the range is greater than its end 2", "0-2"),
        ("0 0 * * 7-2/2", "the start 7 of the range is greater than its end 2", "0-2/2"),
    ],
)
def test_a_backward_range_is_refused_with_what_to_write(cron: str, why: str, remedy: str) -> None:
    [(field, message, hint)] = problems(RuleSpec(cron=cron))
    assert field == "cron" and why in message
    assert hint == f"a range does not wrap around: write {remedy}"
    fields = cron.upper().split()
    at = next(index for index, part in enumerate(fields) if "-" in part)
    fields[at] = ",".join(remedy if "-" in term else term for term in fields[at].split(","))
    assert problems(RuleSpec(cron=" ".join(fields))) == []


def test_a_backward_range_of_a_hash_is_refused_with_the_reason() -> None:
    [(_, message, hint)] = problems(RuleSpec(cron="0 H(22-2) * * *", seed="a"))
    assert "the start 22 of the range is greater than its end 2" in message and "does not wrap" in hint


@pytest.mark.parametrize(
    ("cron", "day"),
    [
        ("0 0 L/2 * *", "L"),
        ("0 0 LW/2 * *", "LW"),
        ("0 0 1,L/2 * *", "L"),
        ("0 0 15W/2 * *", "15W"),
        ("0 0 * * 5L/2", "5L"),
        ("0 0 * * MON#1/2", "MON#1"),
    ],
)
def test_a_step_on_one_day_is_refused(cron: str, day: str) -> None:
    [(_, message, hint)] = problems(RuleSpec(cron=cron))
    assert message.endswith(f": {day} is one day, so a step has nothing to count")
    assert hint == f"write {day}, or a range with the step"


def test_a_month_whose_name_ends_with_l_takes_a_step() -> None:
    assert problems(RuleSpec(cron="0 0 1 JUL/2 *")) == []


@pytest.mark.parametrize(
    ("weekdays", "same"),
    [("1/3", "1,4,0"), ("MON/2", "1,3,5,0"), ("6/1", "6,0"), ("1/4", "1,5"), ("*/3", "0,3,6"), ("1-6/3", "1,4")],
)
def test_a_step_from_a_day_of_week_goes_on_to_sunday(weekdays: str, same: str) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    stepped, listed = (
        slots(Rule.of(RuleSpec(cron=f"0 0 * * {text}")), begin, begin + timedelta(days=28), 99)
        for text in (weekdays, same)
    )
    assert stepped == listed
