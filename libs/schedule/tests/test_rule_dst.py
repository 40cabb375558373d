"""Slots around changes of the clocks: whole hours, half hours, odd minutes, two hours, a whole day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.schedule import RuleSpec
from toban_schedule import Rule, load_zone, slots

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
APIA, TROLL, KATHMANDU, CARACAS = "Pacific/Apia", "Antarctica/Troll", "Asia/Kathmandu", "America/Caracas"
CASABLANCA, SAO_PAULO, NUUK = "Africa/Casablanca", "America/Sao_Paulo", "America/Nuuk"

# zone, first instant with the new offset (UTC), minutes that the local clock jumps
CHANGES = [
    (BERLIN, "2026-03-29T01:00", 60),
    (BERLIN, "2026-10-25T01:00", -60),
    (BERLIN, "2027-03-28T01:00", 60),
    (BERLIN, "2027-10-31T01:00", -60),
    (NEW_YORK, "2026-03-08T07:00", 60),
    (NEW_YORK, "2026-11-01T06:00", -60),
    (NEW_YORK, "2027-03-14T07:00", 60),
    (NEW_YORK, "2027-11-07T06:00", -60),
    (LORD_HOWE, "2026-04-04T15:00", -30),
    (LORD_HOWE, "2026-10-03T15:30", 30),
    (LORD_HOWE, "2027-04-03T15:00", -30),
    (LORD_HOWE, "2027-10-02T15:30", 30),
    # Two hours, at the hour of the change of everybody else in Europe.
    (TROLL, "2026-03-29T01:00", 120),
    (TROLL, "2026-10-25T01:00", -120),
    # The 30th of December 2011 did not come.
    (APIA, "2011-12-30T10:00", 1440),
    # By a quarter and by half an hour, at midnight and in the night.
    (KATHMANDU, "1985-12-31T18:30", 15),
    (CARACAS, "2007-12-09T07:00", -30),
    (CARACAS, "2016-05-01T07:00", 30),
    # At midnight: the day begins at 01:00, or ends twice.
    ("Asia/Beirut", "2026-03-28T22:00", 60),
    ("Asia/Beirut", "2026-10-24T21:00", -60),
    (SAO_PAULO, "2018-11-04T03:00", 60),
    (SAO_PAULO, "2019-02-17T02:00", -60),
    # Back for Ramadan and forth after it: the moon says when, and the offset of winter is the larger one.
    (CASABLANCA, "2026-02-15T02:00", -60),
    (CASABLANCA, "2026-03-22T02:00", 60),
    # The last hour of a Saturday is left out.
    (NUUK, "2026-03-29T01:00", 60),
]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local(instants: list[datetime], zone: str) -> list[str]:
    return [instant.astimezone(load_zone(zone)).strftime("%d %H:%M %z") for instant in instants]


def fires(cron: str, zone: str, day: str, *, days: int = 2, **policy: str) -> list[str]:
    rule = Rule.of(RuleSpec(cron=cron, timezone=zone, **policy))
    start = datetime.fromisoformat(day).replace(tzinfo=load_zone(zone))
    return local(slots(rule, start.astimezone(UTC), start.astimezone(UTC) + timedelta(days=days), 1000), zone)


@pytest.mark.parametrize(("zone", "at", "minutes"), CHANGES)
def test_the_zones_change_when_we_think(zone: str, at: str, minutes: int) -> None:
    instant = utc(at)
    before = (instant - timedelta(seconds=1)).astimezone(load_zone(zone)).utcoffset()
    after = instant.astimezone(load_zone(zone)).utcoffset()
    assert before is not None and after is not None
    assert after - before == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("zone", "day", "cron", "gap", "expected"),
    [
        (BERLIN, "2026-03-28T12:00", "30 2 * * *", "skip", ["30 02:30 +0200"]),
        (BERLIN, "2026-03-28T12:00", "30 2 * * *", "shift", ["29 03:30 +0200", "30 02:30 +0200"]),
        (BERLIN, "2026-03-28T12:00", "30 2 * * *", "run_after", ["29 03:00 +0200", "30 02:30 +0200"]),
        (NEW_YORK, "2027-03-13T12:00", "15 2 * * *", "skip", ["15 02:15 -0400"]),
        (NEW_YORK, "2027-03-13T12:00", "15 2 * * *", "shift", ["14 03:15 -0400", "15 02:15 -0400"]),
        (NEW_YORK, "2027-03-13T12:00", "15 2 * * *", "run_after", ["14 03:00 -0400", "15 02:15 -0400"]),
        (LORD_HOWE, "2026-10-03T12:00", "15 2 * * *", "skip", ["05 02:15 +1100"]),
        (LORD_HOWE, "2026-10-03T12:00", "15 2 * * *", "shift", ["04 02:45 +1100", "05 02:15 +1100"]),
        (LORD_HOWE, "2026-10-03T12:00", "15 2 * * *", "run_after", ["04 02:30 +1100", "05 02:15 +1100"]),
        # A time that exists is not touched, whatever the policy.
        (LORD_HOWE, "2026-10-03T12:00", "30 2 * * *", "run_after", ["04 02:30 +1100", "05 02:30 +1100"]),
        (TROLL, "2026-03-28T12:00", "30 1 * * *", "skip", ["30 01:30 +0200"]),
        (TROLL, "2026-03-28T12:00", "30 1 * * *", "shift", ["29 03:30 +0200", "30 01:30 +0200"]),
        (
            TROLL,
            "2026-03-28T12:00",
            "30 1,2 * * *",
            "run_after",
            ["29 03:00 +0200", "30 01:30 +0200", "30 02:30 +0200"],
        ),
        (APIA, "2011-12-29T12:00", "0 9 * * *", "skip", ["31 09:00 +1400", "01 09:00 +1400"]),
        # The shifted one is the next day's.
        (APIA, "2011-12-29T12:00", "0 9 * * *", "shift", ["31 09:00 +1400", "01 09:00 +1400"]),
        (APIA, "2011-12-29T12:00", "0 9 * * *", "run_after", ["31 00:00 +1400", "31 09:00 +1400", "01 09:00 +1400"]),
        ("Asia/Beirut", "2026-03-28T12:00", "15 0 * * *", "shift", ["29 01:15 +0300", "30 00:15 +0300"]),
        # Midnight itself does not exist.
        (SAO_PAULO, "2018-11-03T12:00", "0 0 * * *", "skip", ["05 00:00 -0200"]),
        (SAO_PAULO, "2018-11-03T12:00", "0 0 * * *", "shift", ["04 01:00 -0200", "05 00:00 -0200"]),
        (CASABLANCA, "2026-03-21T12:00", "30 2 * * *", "shift", ["22 03:30 +0100", "23 02:30 +0100"]),
        # A slot of Saturday that is shifted is Sunday's by the clock, and still Saturday's by the rule.
        (NUUK, "2026-03-28T12:00", "30 23 * * SAT", "shift", ["29 00:30 -0100"]),
        (NUUK, "2026-03-28T12:00", "30 23 * * SAT", "run_after", ["29 00:00 -0100"]),
        # A shifted slot and one that is there anyway are one slot.
        (BERLIN, "2026-03-29T00:00", "30 2,3 29 3 *", "shift", ["29 03:30 +0200"]),
        (BERLIN, "2026-03-29T00:00", "*/20 2 29 3 *", "run_after", ["29 03:00 +0200"]),
    ],
)
def test_a_local_time_that_does_not_exist(zone: str, day: str, cron: str, gap: str, expected: list[str]) -> None:
    assert fires(cron, zone, day, gap=gap) == expected


@pytest.mark.parametrize(
    ("zone", "day", "cron", "fold", "expected"),
    [
        (BERLIN, "2026-10-25T00:00", "30 2 25 * *", "first", ["25 02:30 +0200"]),
        (BERLIN, "2026-10-25T00:00", "30 2 25 * *", "second", ["25 02:30 +0100"]),
        (BERLIN, "2026-10-25T00:00", "30 2 25 * *", "both", ["25 02:30 +0200", "25 02:30 +0100"]),
        (NEW_YORK, "2027-11-07T00:00", "0 1 7 * *", "first", ["07 01:00 -0400"]),
        (NEW_YORK, "2027-11-07T00:00", "0 1 7 * *", "second", ["07 01:00 -0500"]),
        (LORD_HOWE, "2027-04-04T00:00", "45 1 4 * *", "first", ["04 01:45 +1100"]),
        (LORD_HOWE, "2027-04-04T00:00", "45 1 4 * *", "second", ["04 01:45 +1030"]),
        (LORD_HOWE, "2027-04-04T00:00", "45 1 4 * *", "both", ["04 01:45 +1100", "04 01:45 +1030"]),
        (SAO_PAULO, "2019-02-16T12:00", "30 23 16 * *", "both", ["16 23:30 -0200", "16 23:30 -0300"]),
        # The day that ends twice begins once.
        (SAO_PAULO, "2019-02-16T12:00", "0 0 17 * *", "both", ["17 00:00 -0300"]),
        (CASABLANCA, "2026-02-15T00:00", "30 2 15 * *", "first", ["15 02:30 +0100"]),
        (CASABLANCA, "2026-02-15T00:00", "30 2 15 * *", "second", ["15 02:30 +0000"]),
        # 01:15 is not repeated where the clock goes back by half an hour only.
        (LORD_HOWE, "2027-04-04T00:00", "15 1 4 * *", "both", ["04 01:15 +1100"]),
        (
            BERLIN,
            "2026-10-25T00:00",
            "0,40 2 25 * *",
            "both",
            ["25 02:00 +0200", "25 02:40 +0200", "25 02:00 +0100", "25 02:40 +0100"],
        ),
    ],
)
def test_a_local_time_that_comes_twice(zone: str, day: str, cron: str, fold: str, expected: list[str]) -> None:
    assert fires(cron, zone, day, days=1, fold=fold) == expected


def test_the_defaults_are_shift_and_first() -> None:
    assert fires("30 2 * * *", BERLIN, "2026-03-28T12:00") == ["29 03:30 +0200", "30 02:30 +0200"]
    assert fires("30 2 25 * *", BERLIN, "2026-10-25T00:00", days=1) == ["25 02:30 +0200"]


@pytest.mark.parametrize(("zone", "at", "minutes"), CHANGES)
def test_an_expression_for_every_hour_follows_the_clock(zone: str, at: str, minutes: int) -> None:
    rule = Rule.of(RuleSpec(cron="*/5 * * * *", timezone=zone, gap="skip", fold="first"))
    found = slots(rule, utc(at) - timedelta(hours=3), utc(at) + timedelta(hours=3), 1000)
    assert {right - left for left, right in pairwise(found)} == {timedelta(minutes=5)}


def test_a_day_that_does_not_come() -> None:
    assert fires("0 9 30 * *", APIA, "2011-12-01T00:00", days=40, gap="skip") == []
    assert fires("0 9 30 * *", APIA, "2011-12-01T00:00", days=40, gap="shift") == ["31 09:00 +1400"]
    assert fires("0 9 30 * *", APIA, "2011-12-01T00:00", days=40, gap="run_after") == ["31 00:00 +1400"]


@pytest.mark.parametrize(("zone", "at", "minutes"), CHANGES)
@pytest.mark.parametrize("rule", [{"interval_seconds": 90}, {"every_n_minutes": 7}])
def test_intervals_know_no_zone(zone: str, at: str, minutes: int, rule: dict[str, int]) -> None:
    window = (utc(at) - timedelta(hours=3), utc(at) + timedelta(hours=3), 1000)
    assert slots(Rule.of(RuleSpec(**rule, timezone=zone)), *window) == slots(Rule.of(RuleSpec(**rule)), *window)


def oracle(
    cron: set[tuple[int, int]], zone: str, gap: str, fold: str, start: datetime, end: datetime
) -> list[datetime]:
    """The slots of "minute hour" pairs, found by trying every minute of local time."""
    clock = load_zone(zone)
    found: set[datetime] = set()
    wall = (start - timedelta(days=3)).replace(tzinfo=None)
    while wall < (end + timedelta(days=2)).replace(tzinfo=None):
        if (wall.hour, wall.minute) in cron:
            early, late = (wall.replace(tzinfo=clock, fold=fold).astimezone(UTC) for fold in (0, 1))
            exists = early.astimezone(clock).replace(tzinfo=None) == wall
            if early == late:
                found.add(early)
            elif exists:
                found |= {"first": {early}, "second": {late}, "both": {early, late}}[fold]
            elif gap == "shift":
                found.add(early)
            elif gap == "run_after":
                found.add(
                    min(
                        t
                        for t in (late + timedelta(minutes=n) for n in range(1, 1500))
                        if t.astimezone(clock).utcoffset() == early.astimezone(clock).utcoffset()
                    )
                )
        wall += timedelta(minutes=1)
    return sorted(instant for instant in found if start < instant <= end)


@given(
    change=st.sampled_from(CHANGES),
    hours=st.sets(st.integers(0, 5), min_size=1, max_size=4),
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=4),
    gap=st.sampled_from(["skip", "shift", "run_after"]),
    fold=st.sampled_from(["first", "second", "both"]),
    offset=st.integers(-200, 200),
)
def test_no_slot_is_lost_or_doubled_through_a_change(
    change: tuple[str, str, int], hours: set[int], minutes: set[int], gap: str, fold: str, offset: int
) -> None:
    zone, at, _ = change
    start, end = utc(at) + timedelta(minutes=offset) - timedelta(hours=2), utc(at) + timedelta(hours=20)
    cron = f"{','.join(map(str, sorted(minutes)))} {','.join(map(str, sorted(hours)))} * * *"
    rule = Rule.of(RuleSpec(cron=cron, timezone=zone, gap=gap, fold=fold))
    assert slots(rule, start, end, 10_000) == oracle(
        {(h, m) for h in hours for m in minutes}, zone, gap, fold, start, end
    )


@given(
    change=st.sampled_from(CHANGES),
    cron=st.sampled_from(
        ["*/7 1-3 * * *", "0 * * * *", "*/20 */10 0-4 * * *", "30 2 * * SUN", "59 1 * * *", "17 3 * * *"]
    ),
    gap=st.sampled_from(["skip", "shift", "run_after"]),
    fold=st.sampled_from(["first", "second", "both"]),
    seconds=st.integers(-14_400, 14_400),
    micros=st.integers(0, 999_999),
)
def test_next_slot_from_anywhere_agrees_with_the_iteration(
    change: tuple[str, str, int], cron: str, gap: str, fold: str, seconds: int, micros: int
) -> None:
    zone, at, _ = change
    rule = Rule.of(RuleSpec(cron=cron, timezone=zone, gap=gap, fold=fold))
    probe = utc(at) + timedelta(seconds=seconds, microseconds=micros)
    walked = slots(rule, utc(at) - timedelta(hours=6), probe + timedelta(days=9), 20_000)
    assert all(left < right for left, right in pairwise(walked))
    assert rule.next_slot(probe) == next(slot for slot in walked if slot > probe)
