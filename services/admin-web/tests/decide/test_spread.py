"""New minutes for schedules of one crowded minute: which kinds are moved, how far, and why others are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from toban_admin_web.decide.spread import REASONS, spread


def after(found: Any) -> list[str]:
    return [one.after for one in found.moves]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"hourly_at_minute": 0}, "7"),
        ({"daily_at": "18:00"}, "18:07"),
        ({"daily_at": "3:05:30"}, "3:12:30"),
        ({"weekly_at": "mon-fri 03:00"}, "mon-fri 03:07"),
        ({"cron": "0 18 * * MON-FRI"}, "7 18 * * MON-FRI"),
        ({"cron": "30 0 18 1,15 * ?"}, "30 7 18 1,15 * ?"),
        ({"cron": "@Daily"}, "7 0 * * *"),
        ({"cron": "@hourly"}, "7 * * * *"),
    ],
)
def test_the_minute_of_a_rule_that_has_one(rule: dict[str, Any], expected: str) -> None:
    spec = {"name": "b", "job": "sync", "timezone": "Asia/Tokyo", **rule}
    found = spread({"a": {"daily_at": "18:00"}, "b": spec}, 2, 14)
    assert after(found) == ["18:00", expected] and [one.stays for one in found.moves] == [True, False]
    [key] = rule
    kept = type(rule[key])(expected)
    assert found.moves[1].spec == {**spec, key: kept} and found.moves[0].spec == {"daily_at": "18:00"}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"interval_seconds": 3600}, "period"),
        ({"every_n_minutes": 60}, "period"),
        ({"cron": "H 18 * * *"}, "drawn"),
        ({"cron": "h(0-9) 18 * * *"}, "drawn"),
        ({"cron": "*/5 * * * *"}, "several"),
        ({"cron": "0,30 * * * *"}, "several"),
        ({"cron": "0-3 * * * *"}, "several"),
        ({"cron": "@every_minute"}, "several"),
        ({"cron": "*/10 0 18 * * *"}, "seconds"),
        ({"cron": "@unknown"}, "several"),
        ({"daily_at": "noon"}, "several"),
        ({"hourly_at_minute": 50}, "past_hour"),
        ({"daily_at": "18:50"}, "past_hour"),
    ],
)
def test_others_are_left_alone_with_the_reason(rule: dict[str, Any], reason: str) -> None:
    found = spread({"a": rule}, 1, 15)
    [left] = found.left
    assert not found.moves and found.movable == 0 and left.reason == reason and reason in REASONS
    [(key, value)] = rule.items()
    assert left.rule == f"{key}: {value}"


@pytest.mark.parametrize(
    ("count", "minutes", "expected"),
    [
        (4, 4, [0, 1, 2, 3]),
        (4, 60, [0, 15, 30, 45]),
        (3, 10, [0, 3, 6]),
        (6, 3, [0, 0, 1, 1, 2, 2]),
        (7, 3, [0, 0, 0, 1, 1, 2, 2]),
        (1, 60, [0]),
    ],
)
def test_an_even_spread_by_name(count: int, minutes: int, expected: list[int]) -> None:
    names = [f"s{n:02}" for n in range(10)]
    specs = {name: {"hourly_at_minute": 0} for name in reversed(names)}
    found = spread(specs, count, minutes)
    assert [one.name for one in found.moves] == names[:count] and found.movable == 10
    assert [int(one.after) for one in found.moves] == expected
    assert spread(dict(sorted(specs.items())), count, minutes) == found


def test_one_that_changed_meanwhile_takes_no_part() -> None:
    found = spread({name: {"hourly_at_minute": 0} for name in "abc"}, 3, 10, changed={"a"})
    assert [(one.name, one.after) for one in found.moves] == [("b", "0"), ("c", "5")]
    assert [(one.name, one.reason) for one in found.left] == [("a", "changed")]


def test_the_last_minute_of_an_hour_is_reached() -> None:
    found = spread({name: {"daily_at": "23:58"} for name in "ab"}, 2, 2)
    assert after(found) == ["23:58", "23:59"] and not found.left
