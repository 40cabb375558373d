"""Rules: intervals, cron, times of day, bounds, mistakes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.schedule import RuleSpec
from toban_schedule import Rule, ScheduleError, describe, next_slot, problems, slots
from toban_schedule.cron import Cron

NOW = datetime(2026, 11, 21, 11, 30, 7, 250_000, tzinfo=UTC)


def first(count: int, after: datetime = NOW, **rule: object) -> list[str]:
    found = Rule.of(RuleSpec(**rule)).slots_after(after)
    return [slot.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") for slot in islice(found, count)]


def test_schedules_with_equal_expressions_share_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [Rule.of(RuleSpec(cron="7 7 7 * * *", timezone="Asia/Tokyo", seed=f"s{n}")) for n in range(3)]
    searched, walls = [], Cron.walls
    monkeypatch.setattr(Cron, "walls", lambda cron, after: (searched.append(cron.expression), walls(cron, after))[1])
    found = [rule.next_slot(NOW) for rule in rules]
    assert found == [datetime(2026, 11, 21, 22, 7, 7, tzinfo=UTC)] * 3 and len(searched) == 1
    by_minute, seconds = Rule.of(RuleSpec(cron="*/20 7 7 * * *")).source.cron.by_minute()
    assert (by_minute.expression, seconds) == ("0 7 7 * * *", 3), "equal expressions have equal matches"


@pytest.mark.seed(50, 209)
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"interval_seconds": 5}, ["2026-11-21 11:30:10", "2026-11-21 11:30:15"]),
        ({"every_n_minutes": 5}, ["2026-11-21 11:35:00", "2026-11-21 11:40:00"]),
        ({"every_n_minutes": 1440}, ["2026-11-22 00:00:00", "2026-11-23 00:00:00"]),
        ({"hourly_at_minute": 20}, ["2026-11-21 12:20:00", "2026-11-21 13:20:00"]),
        ({"daily_at": "03:00"}, ["2026-11-22 03:00:00", "2026-11-23 03:00:00"]),
        ({"daily_at": "11:30:08"}, ["2026-11-21 11:30:08", "2026-11-22 11:30:08"]),
        ({"daily_at": "03:00", "timezone": "Europe/Berlin"}, ["2026-11-22 02:00:00", "2026-11-23 02:00:00"]),
        ({"weekly_at": "mon,Thursday 9:05"}, ["2026-11-23 09:05:00", "2026-11-26 09:05:00"]),
        ({"weekly_at": "mon-fri 9:05"}, ["2026-11-23 09:05:00", "2026-11-24 09:05:00"]),
        ({"weekly_at": "sat-sun 9:05"}, ["2026-11-22 09:05:00", "2026-11-28 09:05:00"]),
        ({"weekly_at": "fri-mon,wed 9:05"}, ["2026-11-22 09:05:00", "2026-11-23 09:05:00"]),
        ({"cron": "*/15 * * * *"}, ["2026-11-21 11:45:00", "2026-11-21 12:00:00"]),
        ({"cron": "*/20 * * * * *"}, ["2026-11-21 11:30:20", "2026-11-21 11:30:40"]),
        ({"cron": "0 0 29 2 *"}, ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ({"cron": "0 0 31 1-3 *"}, ["2027-01-31 00:00:00", "2027-03-31 00:00:00"]),
        ({"cron": "0 12 L * *"}, ["2026-11-30 12:00:00", "2026-12-31 12:00:00"]),
        ({"cron": "0 12 * * MON#1"}, ["2026-12-07 12:00:00", "2027-01-04 12:00:00"]),
        ({"cron": "0 12 * * 5L"}, ["2026-11-27 12:00:00", "2026-12-25 12:00:00"]),
        ({"cron": "0 12 LW * ?"}, ["2026-11-30 12:00:00", "2026-12-31 12:00:00"]),
        ({"cron": "0 12 15W * *"}, ["2026-12-15 12:00:00", "2027-01-15 12:00:00"]),
        ({"cron": "0 12 1W * *"}, ["2026-12-01 12:00:00", "2027-01-01 12:00:00"]),
        ({"cron": "0 12 29W 11,12 *"}, ["2026-11-30 12:00:00", "2026-12-29 12:00:00"]),
        ({"cron": "0 12 L,26W 12,11 *"}, ["2026-11-26 12:00:00", "2026-11-30 12:00:00"]),
        ({"cron": "0 12 ? * FRI-SUN"}, ["2026-11-21 12:00:00", "2026-11-22 12:00:00"]),
        ({"cron": "0 12 ? DEC,Jan ?"}, ["2026-12-01 12:00:00", "2026-12-02 12:00:00"]),
        ({"cron": "0 0 1-7/3,20 * *"}, ["2026-12-01 00:00:00", "2026-12-04 00:00:00"]),
        ({"cron": "50/4 * * * *"}, ["2026-11-21 11:50:00", "2026-11-21 11:54:00"]),
        ({"cron": "@every_minute"}, ["2026-11-21 11:31:00", "2026-11-21 11:32:00"]),
        ({"cron": "@annually"}, ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ({"cron": "@midnight"}, ["2026-11-22 00:00:00", "2026-11-23 00:00:00"]),
        ({"cron": "@hourly"}, ["2026-11-21 12:00:00", "2026-11-21 13:00:00"]),
        ({"cron": " @Daily "}, ["2026-11-22 00:00:00", "2026-11-23 00:00:00"]),
        ({"cron": "@weekly"}, ["2026-11-22 00:00:00", "2026-11-29 00:00:00"]),
        ({"cron": "@monthly"}, ["2026-12-01 00:00:00", "2027-01-01 00:00:00"]),
        ({"cron": "@yearly"}, ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ({"cron": "30 4 * * *", "timezone": "Asia/Kathmandu"}, ["2026-11-21 22:45:00", "2026-11-22 22:45:00"]),
    ],
)
def test_next_slots(rule: dict[str, object], expected: list[str]) -> None:
    assert first(2, **rule) == expected


def test_a_slot_is_strictly_after() -> None:
    rule = Rule.of(RuleSpec(interval_seconds=60))
    on_the_slot = datetime(2026, 11, 21, 11, 31, tzinfo=UTC)
    assert next_slot(rule, on_the_slot) == on_the_slot + timedelta(seconds=60)
    assert next_slot(rule, on_the_slot - timedelta(microseconds=1)) == on_the_slot


def test_the_zone_of_the_question_does_not_matter() -> None:
    rule = Rule.of(RuleSpec(cron="0 3 * * *", timezone="Europe/Berlin"))
    assert rule.next_slot(NOW) == rule.next_slot(NOW.astimezone(timezone(timedelta(hours=-9))))


def test_slots_are_bounded() -> None:
    rule = Rule.of(RuleSpec(interval_seconds=1))
    assert len(slots(rule, NOW, NOW + timedelta(seconds=10), 1000)) == 10
    assert len(slots(rule, NOW, NOW + timedelta(days=10), 7)) == 7
    assert slots(rule, NOW, NOW, 7) == []


def test_start_is_a_slot_and_end_is_not() -> None:
    bounds = {"start": "2026-11-21T13:00:00+01:00", "end": "2026-11-21T12:02:00Z"}
    assert first(9, interval_seconds=60, **bounds) == ["2026-11-21 12:00:00", "2026-11-21 12:01:00"]
    assert Rule.of(RuleSpec(interval_seconds=60, **bounds)).next_slot(datetime(2027, 1, 1, tzinfo=UTC)) is None


@pytest.mark.seed(181)
@pytest.mark.parametrize(
    ("rule", "field", "words"),
    [
        ({}, "rule", "0 rules"),
        ({"cron": "* * * * *", "interval_seconds": 3}, "rule", "2 rules"),
        ({"interval_seconds": 0}, "interval_seconds", "is 0"),
        ({"every_n_minutes": -1}, "every_n_minutes", "is -1"),
        ({"hourly_at_minute": 60}, "hourly_at_minute", "is 60"),
        ({"daily_at": "25:00"}, "daily_at", "not a time of day"),
        ({"weekly_at": "03:00"}, "weekly_at", "not a weekday"),
        ({"weekly_at": "month 03:00"}, "weekly_at", "not a weekday"),
        ({"cron": "61 * * * *"}, "cron", "'61' is not a minute"),
        ({"cron": "* 24 * * *"}, "cron", "'24' is not a hour"),
        ({"cron": "* * * * MOON"}, "cron", "'MOON' is not a day of week"),
        ({"cron": "* * *"}, "cron", "has 3 fields"),
        ({"cron": ""}, "cron", "has 0 fields"),
        ({"cron": "*/0 * * * *"}, "cron", "not a minute"),
        ({"cron": "H(0-70) 3 * * *"}, "cron", "'H(0-70)' is not a minute"),
        ({"cron": "0 H/0 * * *"}, "cron", "write H, H/15, H(0-23)"),
        ({"cron": "0 0 H(9-3) * *"}, "cron", "not a day of month"),
        ({"cron": "0 0 32W * *"}, "cron", "'32W' is not a day of month"),
        ({"cron": "0 0 31W 2 *"}, "cron", "never fires"),
        ({"cron": "0 ? * * *"}, "cron", "'?' is not a hour"),
        ({"cron": "0 0 * * MON-SUN-TUE"}, "cron", "not a day of week"),
        ({"cron": "0 22-2 * * *"}, "cron", "'22-2' is not a hour"),
        ({"cron": "@reboot"}, "cron", "not an alias"),
        ({"cron": "0 0 30 2 *"}, "cron", "never fires"),
        ({"cron": "0 0 31 4,6,9,11 *"}, "cron", "never fires"),
        ({"cron": "0 0 */31 2 MON#5"}, "cron", "never fires"),
        ({"cron": "30 2 * 3 SUNL"}, "cron", "'SUNL' is not a day of week"),
        ({"cron": "30 2 * 3 0L", "timezone": "Europe/Berlin", "gap": "skip"}, "cron", "never fires"),
        ({"cron": "0 3 * * *", "timezone": "Europe/Berln"}, "timezone", "did you mean Europe/Berlin"),
        ({"cron": "0 3 * * *", "timezone": "berlin"}, "timezone", "Europe/Berlin"),
        ({"cron": "0 3 * * *", "timezone": "Moon/Crater"}, "timezone", "IANA"),
        ({"cron": "0 3 * * *", "timezone": "../etc/passwd"}, "timezone", "there is no zone"),
        ({"cron": "0 3 * * *", "gap": "jump"}, "gap", "skip, shift, run_after"),
        ({"cron": "0 3 * * *", "fold": "third"}, "fold", "first, second, both"),
        ({"interval_seconds": 5, "start": "tomorrow"}, "start", "not an ISO time"),
        ({"interval_seconds": 5, "start": "2026-01-01T00:00:00"}, "start", "has no offset"),
        ({"interval_seconds": 5, "start": "0001-01-01T00:00:00+14:00"}, "start", "is in the year 1; use 1970 to 2199"),
        ({"interval_seconds": 5, "start": "9999-12-31T23:59:59-14:00"}, "start", "is in the year 9999"),
        ({"cron": "@yearly", "end": "9999-12-31T00:00:00Z"}, "end", "or leave end out"),
        (
            {"interval_seconds": 5, "start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"},
            "end",
            "is not after",
        ),
        (
            {"cron": "@yearly", "start": "2026-01-02T00:00:00Z", "end": "2026-02-01T00:00:00Z"},
            "end",
            "no slot lies between",
        ),
    ],
)
def test_mistakes_name_the_field_and_the_way_out(rule: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Rule.of(RuleSpec(**rule))
    assert caught.value.field == field
    assert words in str(caught.value)
    assert problems(RuleSpec(**rule)) == [(caught.value.field, caught.value.message, caught.value.hint)]


def test_a_sound_rule_has_no_problems() -> None:
    assert problems(RuleSpec(cron="0 3 * * *", timezone="Europe/Berlin")) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"interval_seconds": 5}, "every 5 seconds"),
        ({"interval_seconds": 1}, "every second"),
        ({"interval_seconds": 7200}, "every 2 hours"),
        ({"interval_seconds": 90}, "every 90 seconds"),
        ({"every_n_minutes": 5}, "every 5 minutes"),
        ({"hourly_at_minute": 5}, "hourly at minute 5"),
        ({"daily_at": "03:00", "timezone": "Europe/Berlin"}, "daily at 03:00 Europe/Berlin"),
        ({"weekly_at": "mon 03:00"}, "weekly on mon 03:00"),
        ({"cron": "0 3 * * *"}, "cron 0 3 * * *"),
        ({"cron": "H 3 * * *", "seed": "backup"}, "cron H 3 * * * = 15 3 * * *"),
    ],
)
def test_rules_in_words(rule: dict[str, object], words: str) -> None:
    assert describe(RuleSpec(**rule)) == words


def moments(low: str, high: str) -> st.SearchStrategy[datetime]:
    return st.datetimes(datetime.fromisoformat(low), datetime.fromisoformat(high), timezones=st.just(UTC))


@given(
    seconds=st.integers(1, 366 * 86_400),
    after=moments("1980-01-01", "2090-01-01"),
)
def test_intervals_are_multiples_since_the_epoch(seconds: int, after: datetime) -> None:
    slot = Rule.of(RuleSpec(interval_seconds=seconds)).next_slot(after)
    assert slot is not None
    assert slot.timestamp() % seconds == 0
    assert timedelta(0) < slot - after <= timedelta(seconds=seconds)


FIELD = {"minute": (0, 59), "hour": (0, 23), "day": (1, 28), "month": (1, 12), "weekday": (0, 6)}


@st.composite
def expressions(draw: st.DrawFn) -> str:
    parts = []
    for low, high in FIELD.values():
        values = draw(st.one_of(st.just(None), st.sets(st.integers(low, high), min_size=1, max_size=3)))
        parts.append("*" if values is None else ",".join(map(str, sorted(values))))
    return " ".join(parts)


@given(
    cron=expressions(),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
    after=moments("2020-01-01", "2030-01-01"),
)
def test_slots_increase_and_agree_with_next_slot(cron: str, zone: str, after: datetime) -> None:
    rule = Rule.of(RuleSpec(cron=cron, timezone=zone))
    found = list(islice(rule.slots_after(after), 20))
    assert all(left < right for left, right in pairwise([after, *found]))
    assert found == slots(rule, after, found[-1], 100)
    for left, right in pairwise(found):
        assert rule.next_slot(left + (right - left) / 2) == right
        assert rule.next_slot(right - timedelta(microseconds=1)) == right
