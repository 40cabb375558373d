"""A month of slots: each day with its count and first times, days of change among them, and past days with their outcomes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from toban_admin_web.decide.api_models import Fire
from toban_admin_web.decide.month_calendar import Day, Month, month_calendar, month_of, rule_of

NOW = datetime(2027, 3, 10, 12, tzinfo=UTC)
BERLIN = {"timezone": "Europe/Berlin"}


def fire(at: datetime, outcome: str = "fired", slots: int = 1) -> Fire:
    return Fire(first_slot=at, last_slot=at, slots=slots, outcome=outcome, run_id=0, message="", at=at)


def month(spec: dict[str, Any], first: date = date(2027, 3, 1), *fires: Fire, has_more: bool = False) -> Month:
    rule = rule_of(spec, "nightly")
    assert rule is not None
    return month_calendar(rule, first, NOW, fires, zone=spec.get("timezone", "UTC"), has_more=has_more)


def day(found: Month, number: int) -> Day:
    [one] = [one for week in found.weeks for one in week if one is not None and one.day.day == number]
    return one


def test_the_days_of_a_month_are_in_weeks_that_begin_with_monday() -> None:
    found = month({"daily_at": "03:00"}, date(2027, 5, 1))
    assert [None if one is None else one.day.day for one in found.weeks[0]] == [None] * 5 + [1, 2]
    assert [one.day.day for one in found.weeks[-1] if one] == [31]
    assert (found.before, found.after) == ("2027-04", "2027-06")


def test_slots_are_those_from_now_on() -> None:
    found = month({"cron": "0 */6 * * *"})
    assert (day(found, 9).slots, day(found, 9).is_today) == (0, False)
    assert (day(found, 10).slots, day(found, 10).first, day(found, 10).is_today) == (1, ("18:00",), True)
    assert (day(found, 11).slots, day(found, 11).first) == (4, ("00:00", "06:00", "12:00"))


def test_a_rule_of_each_second_is_counted_and_not_visited() -> None:
    found = month({"cron": "* * * * * *", **BERLIN})
    assert (day(found, 27).slots, day(found, 28).slots) == (86_400, 82_800)
    assert day(found, 28).first == ("00:00", "00:00:01", "00:00:02")


def test_days_are_those_of_the_zone_and_of_utc_for_intervals() -> None:
    assert month({"daily_at": "00:30", **BERLIN}).zone == "Europe/Berlin"
    assert day(month({"daily_at": "02:30", **BERLIN}), 28).first == ("03:30",)
    late = datetime(2027, 3, 4, 23, 30, tzinfo=UTC)
    assert day(month({"daily_at": "00:30", **BERLIN}, date(2027, 3, 1), fire(late)), 5).outcomes == (("fired", 1),)
    every = month({"every_n_minutes": 720, **BERLIN}, date(2027, 3, 1), fire(late))
    assert every.zone == "UTC" and day(every, 4).outcomes == (("fired", 1),) and day(every, 20).slots == 2


def test_past_days_have_the_outcomes_of_the_ledger() -> None:
    ninth = datetime(2027, 3, 9, 3, tzinfo=UTC)
    found = month({"daily_at": "03:00"}, date(2027, 3, 1), fire(ninth), fire(ninth, "paused", 3), fire(ninth))
    assert day(found, 9).outcomes == (("fired", 2), ("paused", 3)) and day(found, 8).outcomes == ()
    assert found.unread_before is None
    assert month({"daily_at": "03:00"}, date(2027, 3, 1), fire(ninth), has_more=True).unread_before == date(2027, 3, 9)
    assert month({"daily_at": "03:00"}, date(2027, 4, 1), fire(ninth), has_more=True).unread_before is None


def test_an_entry_of_several_days_is_on_each_of_them_that_has_slots() -> None:
    began, ended = datetime(2027, 2, 26, 18, tzinfo=UTC), datetime(2027, 3, 2, 6, tzinfo=UTC)

    def paused(slots: int) -> Fire:
        return fire(began, "paused", slots).model_copy(update={"last_slot": ended})

    found = month({"cron": "0 */6 * * MON-FRI"}, date(2027, 3, 1), paused(7))
    assert [day(found, number).outcomes for number in (1, 2, 3)] == [(("paused", 4),), (("paused", 2),), ()]
    before = month({"cron": "0 */6 * * MON-FRI"}, date(2027, 2, 1), paused(7))
    assert [day(before, number).outcomes for number in (26, 27)] == [(("paused", 1),), ()]
    edited = month({"daily_at": "03:00"}, date(2027, 2, 1), paused(7))
    assert day(edited, 26).outcomes == (("paused", 7),)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("2026-12", date(2026, 12, 1)),
        ("1970-01", date(1970, 1, 1)),
        ("2199-12", date(2199, 12, 1)),
        *((text, None) for text in ("", "2026-13", "1969-12", "2200-01", "2026-1", "2026-12-01", "٢٠٢٦-12")),
    ],
)
def test_a_month_of_an_address(text: str, first: date | None) -> None:
    assert month_of(text) == first


def test_the_first_and_the_last_month_have_one_neighbour() -> None:
    assert month({"daily_at": "03:00"}, date(1970, 1, 1)).before == ""
    assert month({"daily_at": "03:00"}, date(2199, 12, 1)).after == ""


@pytest.mark.parametrize("spec", [{}, {"cron": "x"}, {"daily_at": 3}, {"dst": 3, "daily_at": "03:00"}])
def test_a_rule_that_cannot_be_read_has_no_calendar(spec: dict[str, Any]) -> None:
    assert rule_of(spec, "nightly") is None
