"""Counting the slots of a range agrees with iterating over them."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.schedule import RuleSpec
from toban_schedule import Rule, SlotCount, count_slots, load_zone, slots
from toban_schedule.rule import TICK
from toban_schedule.slot_count import count_of_day

ZONES = [
    ("UTC", "2026-03-29T00:00"),
    ("Europe/Berlin", "2026-03-29T00:00"),
    ("Europe/Berlin", "2026-10-25T00:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:00"),
    ("Antarctica/Troll", "2026-03-29T00:00"),
    ("Pacific/Apia", "2011-12-30T00:00"),
    ("Asia/Beirut", "2026-03-28T22:00"),
]
RULES = [
    {"interval_seconds": 1000},
    {"every_n_minutes": 7},
    {"hourly_at_minute": 30},
    {"daily_at": "02:30"},
    {"weekly_at": "sat-mon 00:15"},
    {"cron": "*/20 * * * *"},
    {"cron": "*/20 */10 0-4 * * *"},
    {"cron": "30 2,23 * * *"},
    {"cron": "15 0 L,29,30 * *"},
]


@given(
    place=st.sampled_from(ZONES),
    rule=st.sampled_from(RULES),
    gap=st.sampled_from(["skip", "shift", "run_after"]),
    fold=st.sampled_from(["first", "second", "both"]),
    before=st.integers(0, 20 * 86_400),
    length=st.integers(1, 25 * 86_400),
    cut=st.booleans(),
)
def test_a_count_agrees_with_an_iteration(
    place: tuple[str, str], rule: dict[str, object], gap: str, fold: str, before: int, length: int, cut: bool
) -> None:
    zone, near = place
    after = datetime.fromisoformat(near).replace(tzinfo=UTC) - timedelta(seconds=before)
    until = after + timedelta(seconds=length)
    end = (until - timedelta(seconds=length // 3)).isoformat() if cut else ""
    made = Rule.of(RuleSpec(**rule, timezone=zone, gap=gap, fold=fold, end=end))  # type: ignore[arg-type]
    iterated = slots(made, after, until, 1_000_000)
    expected = SlotCount(iterated[0], iterated[-1], len(iterated)) if iterated else None
    assert count_slots(made, after, until) == expected


@given(
    place=st.sampled_from(ZONES),
    rule=st.sampled_from([{"cron": "*/20 * * * * *"}, *RULES]),
    gap=st.sampled_from(["skip", "shift", "run_after"]),
    fold=st.sampled_from(["first", "second", "both"]),
    day=st.integers(-3, 3),
    cut=st.sampled_from(["", "start", "end"]),
)
def test_a_count_of_a_day_agrees_with_an_iteration(
    place: tuple[str, str], rule: dict[str, object], gap: str, fold: str, day: int, cut: str
) -> None:
    name, near = place
    zone = UTC if rule.keys() & {"interval_seconds", "every_n_minutes"} else load_zone(name)
    local = datetime.fromisoformat(near).replace(tzinfo=UTC).astimezone(zone).date() + timedelta(days=day)
    begin, end = (datetime(one.year, one.month, one.day, tzinfo=zone) for one in (local, local + timedelta(days=1)))
    noon = datetime(local.year, local.month, local.day, 12, tzinfo=zone).isoformat()
    made = Rule.of(RuleSpec(**rule, timezone=name, gap=gap, fold=fold, **({cut: noon} if cut else {})))  # type: ignore[arg-type]
    after = begin.astimezone(UTC) - TICK
    expected = len(slots(made, after, end.astimezone(UTC) - TICK, 1_000_000))
    assert count_of_day(made, local, after - timedelta(days=1)).slots == expected
    assert count_of_day(made, local, end) == (0, 0)


def test_a_count_of_a_day_names_what_was_visited() -> None:
    zurich = RuleSpec(cron="*/2 * * * *", timezone="Europe/Zurich", start="2026-11-10T12:00:00Z")
    every_second = RuleSpec(cron="* * * * * *", end="2026-11-20T00:30:10Z")
    last_year = datetime(2025, 1, 1, tzinfo=UTC)
    found = {
        name: count_of_day(Rule.of(rule), date.fromisoformat(day), last_year)
        for name, rule, day in (
            ("a whole day", zurich, "2026-11-11"),
            ("the start", zurich, "2026-11-10"),
            ("a change of the clocks", zurich, "2027-03-28"),
            ("beside one", zurich, "2027-03-27"),
            ("whole minutes", every_second, "2026-11-20"),
            ("an interval", RuleSpec(interval_seconds=1), "2026-11-20"),
        )
    }
    assert found == {
        "a whole day": (720, 0),
        "the start": (330, 330),
        "a change of the clocks": (690, 690),
        "beside one": (720, 720),
        "whole minutes": (31 * 60, 31),
        "an interval": (86_400, 0),
    }


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ({"interval_seconds": 1}, 365 * 86_400),
        ({"cron": "* * * * * *"}, 365 * 86_400),
        ({"cron": "*/5 * * * *", "timezone": "Europe/Berlin"}, 365 * 288),
        ({"daily_at": "02:30", "timezone": "Europe/Berlin"}, 365),
    ],
)
def test_a_year_is_counted_at_once(rule: dict[str, object], count: int) -> None:
    begun = time.process_time()
    after = datetime(2026, 1, 5, tzinfo=UTC)
    found = count_slots(Rule.of(RuleSpec(**rule)), after, after + timedelta(days=365))  # type: ignore[arg-type]
    assert found is not None and found.slots == count
    # Iterating over every second would take minutes.
    assert time.process_time() - begun < 10
