"""Slots by day over many schedules, and the minutes of a day."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from toban_admin_web.decide import load_month as months
from toban_admin_web.decide.api_models import Schedule
from toban_admin_web.decide.load_month import LoadDay, LoadMonth, firing, load_month, load_of_day

NOW = datetime(2027, 3, 26, 12, 0, tzinfo=UTC)
MARCH = date(2027, 3, 1)


def schedule(name: str, timezone: str = "UTC", **rule: Any) -> Schedule:
    given = {"name": name, "job": "sync", "enabled": True, "status": "active", "version": 3, "timezone": timezone}
    spec = {"name": name, "job": "sync", "payload": {"of": name}, "timezone": timezone, **rule}
    return Schedule.model_construct(**{**dict.fromkeys(Schedule.model_fields), **given, "spec": spec})


def days(month: LoadMonth) -> dict[int, LoadDay]:
    return {one.day.day: one for week in month.weeks for one in week if one}


SCHEDULES = [
    schedule("a", daily_at="03:00"),
    schedule("b", daily_at="03:00"),
    schedule("c", "Europe/Zurich", cron="30 * * * *"),
    schedule("d", cron="H 5 28 * *"),
    schedule("e", interval_seconds=3600),
    schedule("broken", cron="no cron"),
]


def test_each_day_has_the_slots_to_come_and_where_the_clocks_change() -> None:
    month = load_month(SCHEDULES, MARCH, NOW)
    found = days(month)
    assert len(month.weeks[0]) == 7 and sorted(found) == list(range(1, 32))
    assert (found[25].slots, found[27].slots, found[28].slots) == (0, 2 + 24 + 24, 2 + 23 + 1 + 24)
    assert found[26].slots == 11 + 11, "the rest of today"
    assert {number: one.zones for number, one in found.items() if one.zones} == {28: ("Europe/Zurich",)}
    assert [number for number, one in found.items() if one.is_today] == [26]
    assert (month.schedules, month.left_out, month.unreadable) == (5, 0, 1)
    assert (month.before, month.after, load_month([], date(2027, 4, 1), NOW).before) == ("", "2027-04", "2027-03")


def test_a_month_and_a_map_visit_a_bounded_number_of_slots(monkeypatch: Any) -> None:
    monkeypatch.setattr(months, "MOST_VISITED", 20)
    often = [schedule(f"s{number}", cron=f"{number} * * * *") for number in range(4)]
    month = load_month(often, MARCH, NOW)
    assert (month.schedules, month.left_out) == (2, 2)
    load, _ = load_of_day(often, date(2027, 3, 28), NOW, crowded=3, names=3)
    assert (load.schedules, load.left_out) == (1, 3)


def test_only_what_is_visited_is_charged(monkeypatch: Any) -> None:
    monkeypatch.setattr(months, "MOST_VISITED", 1500)
    april = date(2027, 4, 1)
    seconds = [schedule(f"s{number}", cron=f"{number}-59 * * * * *") for number in range(4)]
    seconds += [schedule(f"i{number}", interval_seconds=number + 1) for number in range(4)]
    assert load_month(seconds, april, NOW).left_out == 0, "no day of them is visited"
    cut = [
        schedule(f"c{number}", cron="* * * * *", start=f"2027-04-0{number + 1}T12:00:00Z", end="2027-04-20T12:00:00Z")
        for number in range(4)
    ]
    assert load_month(cut, april, NOW).left_out == 2, "each has 720 minutes on the first and 720 on the last day"


def test_the_minutes_of_a_day_are_those_of_a_map() -> None:
    at = datetime(2027, 3, 28, 3, 0, tzinfo=UTC)
    load, [one] = load_of_day(SCHEDULES, at.date(), NOW, crowded=2, names=1, minute=at, all_names=9)
    counts = {f"{one.at:%H:%M}": one.slots for one in load.minutes if one.at}
    assert counts["03:00"] == 3 and sum(counts.values()) == 2 + 24 + 1 + 24
    [first, _] = load.crowded
    assert (first.slots, first.schedules, [one.schedule for one in first.named]) == (3, 3, ["a"])
    assert (load.schedules, load.unreadable) == (5, 1)
    assert [named.schedule for named in one.named] == ["a", "b", "e"]
    yesterday = datetime(2027, 3, 25, 3, 0, tzinfo=UTC)
    past, nothing = load_of_day(SCHEDULES, yesterday.date(), NOW, crowded=2, names=1, minute=yesterday, all_names=9)
    assert past.minutes == nothing == []


def test_what_is_off_fires_from_the_end_of_that_on() -> None:
    hourly, every_second = schedule("p", cron="30 * * * *"), schedule("q", cron="*/20 * * * * *")
    end = datetime(2027, 3, 29, 21, 30, tzinfo=UTC)
    for_good = [hourly.model_copy(update=off) for off in ({"status": "paused"}, {"job_disabled": True})]
    for_good.append(hourly.model_copy(update={"enabled": False, "next_run_at": end}))
    with_end = [
        hourly.model_copy(update={"status": "paused", "paused_until": end, "next_run_at": end}),
        every_second.model_copy(update={"job_disabled": True, "job_disabled_until": end, "next_run_at": end}),
    ]
    found = firing([*for_good, *SCHEDULES[:1], *with_end])
    assert [one.name for one in found] == ["a", "p", "q"]
    month = days(load_month(found[1:], MARCH, NOW))
    assert [month[day].slots for day in (28, 29, 30)] == [0, 3 + 450, 24 + 4320]
    load, _ = load_of_day([found[1]], end.date(), NOW, crowded=2, names=1)
    assert [f"{one.at:%H:%M}" for one in load.minutes if one.at] == ["21:30", "22:30", "23:30"]
