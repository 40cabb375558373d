"""Which rule of DST made a slot, in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.schedule import RuleSpec
from toban_schedule import Rule, annotated_slots, next_dst_change, slots

BERLIN = "Europe/Berlin"


def told(after: str, count: int = 2, **rule: object) -> list[tuple[str, str]]:
    made = Rule.of(RuleSpec(**rule))  # type: ignore[arg-type]
    found = annotated_slots(made, datetime.fromisoformat(after).replace(tzinfo=UTC), count)
    return [(f"{slot.local:%d %H:%M %z}", slot.note) for slot in found]


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ("shift", [("29 03:30 +0200", "gap: 02:30 does not exist, shifted to 03:30"), ("30 02:30 +0200", "")]),
        (
            "run_after",
            [("29 03:00 +0200", "gap: 02:30 does not exist, run after the gap, at 03:00"), ("30 02:30 +0200", "")],
        ),
        ("skip", [("30 02:30 +0200", "gap: 2026-03-29 02:30 does not exist, left out"), ("31 02:30 +0200", "")]),
    ],
)
def test_a_gap(gap: str, expected: list[tuple[str, str]]) -> None:
    assert told("2026-03-28T12:00", cron="30 2 * * *", timezone=BERLIN, gap=gap) == expected


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("first", [("25 02:30 +0200", "fold: first of two 02:30"), ("26 02:30 +0100", "")]),
        ("second", [("25 02:30 +0100", "fold: second of two 02:30"), ("26 02:30 +0100", "")]),
        ("both", [("25 02:30 +0200", "fold: first of two 02:30"), ("25 02:30 +0100", "fold: second of two 02:30")]),
    ],
)
def test_a_fold(fold: str, expected: list[tuple[str, str]]) -> None:
    assert told("2026-10-24T12:00", cron="30 2 * * *", timezone=BERLIN, fold=fold) == expected


def test_several_that_become_one() -> None:
    [(_, merged), _] = told("2026-03-28T23:30", cron="30 2,3 * * *", timezone=BERLIN)
    assert merged == "gap: 02:30 does not exist, shifted to 03:30, which is a slot anyway"
    [(_, many), *_] = told("2026-03-28T23:30", cron="*/10 2 * * *", timezone=BERLIN, gap="run_after")
    assert many == "gap: 02:00 to 02:50 (6 times) do not exist, run after the gap, at 03:00"
    [(_, both), *_] = told("2026-03-28T23:30", cron="0,30 2 * * *", timezone=BERLIN, gap="run_after")
    assert both == "gap: 02:00 and 02:30 do not exist, run after the gap, at 03:00"


def test_a_day_that_does_not_come() -> None:
    [(local, note), _] = told("2011-12-29T21:00", daily_at="09:00", timezone="Pacific/Apia")
    assert local == "31 09:00 +1400"
    assert note == "gap: 2011-12-30 09:00 does not exist, shifted to 09:00, which is a slot anyway"


def test_a_rule_that_follows_the_clock_says_where_the_clock_jumped() -> None:
    found = told("2026-03-29T00:45", 3, cron="*/20 * * * *", timezone=BERLIN)
    assert found == [
        ("29 03:00 +0200", "gap: 02:00 and 02:20 and 02:40 do not exist, left out"),
        ("29 03:20 +0200", ""),
        ("29 03:40 +0200", ""),
    ]
    assert [note for _, note in told("2026-10-25T00:10", 3, cron="*/30 * * * *", timezone=BERLIN)] == [
        "fold: first of two 02:30",
        "fold: second of two 02:00",
        "fold: second of two 02:30",
    ]


def test_nothing_to_tell() -> None:
    assert told("2026-03-29T00:00", 1, interval_seconds=60, timezone=BERLIN) == [("29 00:01 +0000", "")]
    assert told("2026-03-29T00:00", 5, daily_at="09:00", end="2026-03-29T00:00:01Z") == []
    # The bounds of the schedule hold for notes too: nothing before the start is told.
    [(local, note)] = told(
        "2020-01-01T00:00", 1, daily_at="02:30", timezone=BERLIN, gap="skip", start="2026-03-29T12:00:00Z"
    )
    assert (local, note) == ("30 02:30 +0200", "")


@given(
    cron=st.sampled_from(["30 2 * * *", "*/7 0-4 * * *", "15 0,1,2,3 * * *", "*/30 * * * *", "0 9 L * *"]),
    place=st.sampled_from(
        [
            (BERLIN, "2026-03-29T01:00"),
            (BERLIN, "2026-10-25T01:00"),
            ("Australia/Lord_Howe", "2026-10-03T15:30"),
            ("Antarctica/Troll", "2026-10-25T01:00"),
            ("Pacific/Apia", "2011-12-30T10:00"),
        ]
    ),
    gap=st.sampled_from(["skip", "shift", "run_after"]),
    fold=st.sampled_from(["first", "second", "both"]),
    back=st.integers(0, 40),
)
def test_notes_stand_where_the_local_time_is_not_plain(
    cron: str, place: tuple[str, str], gap: str, fold: str, back: int
) -> None:
    zone, change = place
    rule = Rule.of(RuleSpec(cron=cron, timezone=zone, gap=gap, fold=fold))
    at = datetime.fromisoformat(change).replace(tzinfo=UTC)
    after = datetime.fromtimestamp(at.timestamp() - back * 3600, UTC)
    found = annotated_slots(rule, after, 50)
    assert [slot.at for slot in found] == slots(rule, after, datetime(2099, 1, 1, tzinfo=UTC), 50)
    for slot in found:
        wall = slot.local.replace(tzinfo=None)
        early, late = (wall.replace(tzinfo=slot.local.tzinfo, fold=fold).astimezone(UTC) for fold in (0, 1))
        assert ("fold: first" in slot.note) == (early < late and slot.at == early)
        assert ("fold: second" in slot.note) == (early < late and slot.at == late)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"daily_at": "02:30"}, "2026-10-25: 02:30 comes twice, runs the first time (fold: first)"),
        ({"daily_at": "02:30", "fold": "both"}, "2026-10-25: 02:30 comes twice, runs both times (fold: both)"),
        (
            {"cron": "30 2 * 3 *"},
            "2027-03-28: 02:30 does not exist, runs as much later as the clock jumps (gap: shift)",
        ),
        ({"cron": "30 2 * 3 *", "gap": "skip"}, "2027-03-28: 02:30 does not exist, is left out (gap: skip)"),
        (
            {"cron": "*/10 1-3 * 3 *", "gap": "run_after"},
            "2027-03-28: 02:00 to 02:50 (6 times) do not exist, run when the gap is over (gap: run_after)",
        ),
        ({"daily_at": "02:30", "start": "2026-10-26T00:00:00Z"}, "2027-03-28: 02:30 does not exist, "),
        ({"daily_at": "02:30", "end": "2026-10-25T00:00:00Z"}, ""),
        ({"daily_at": "03:00"}, ""),
        ({"weekly_at": "mon 02:30"}, ""),
        ({"cron": "*/5 * * * *"}, ""),
        ({"interval_seconds": 3600}, ""),
        ({"daily_at": "02:30", "timezone": "UTC"}, ""),
        ({"daily_at": "02:30", "timezone": "Asia/Tokyo"}, ""),
        ({"daily_at": "02:10", "timezone": "Australia/Lord_Howe"}, "2026-10-04: 02:10 does not exist, "),
    ],
)
def test_the_next_change_of_the_clocks_that_touches_a_rule(rule: dict[str, str], said: str) -> None:
    made = Rule.of(RuleSpec(**{"timezone": BERLIN, **rule}))  # type: ignore[arg-type]
    told = next_dst_change(made, datetime(2026, 6, 1, 12, 0, 0, 7, tzinfo=UTC))
    assert told.startswith(said) and bool(told) == bool(said)
