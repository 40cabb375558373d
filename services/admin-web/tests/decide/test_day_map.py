"""The map of days: weeks as columns, Monday first."""

from datetime import date, timedelta

import pytest

from toban_admin_web.decide.api_models import JobDay
from toban_admin_web.decide.day_map import DAYS, GAP, SIDE, day_map

TODAY = date(2026, 11, 23)


def ended(day: date, succeeded: int = 0, failed: int = 0, other: int = 0) -> JobDay:
    return JobDay(day=day.isoformat(), succeeded=succeeded, failed=failed, other=other)


@pytest.mark.parametrize("ahead", range(7))
def test_every_day_has_its_place(ahead: int) -> None:
    today = TODAY + timedelta(days=ahead)
    made = day_map([], today)
    assert [one.day for one in made.squares] == [today - timedelta(days=DAYS - 1 - n) for n in range(DAYS)]
    assert len({(one.x, one.y) for one in made.squares}) == DAYS
    assert all(one.y == one.day.weekday() * (SIDE + GAP) for one in made.squares)
    assert all(0 <= one.x <= made.width - SIDE and 0 <= one.y <= made.height - SIDE for one in made.squares)
    assert all(after - before > 2 * SIDE for (before, _), (after, _) in zip(made.months, made.months[1:], strict=False))


@pytest.mark.parametrize(
    ("counts", "tone"),
    [
        ({"succeeded": 3}, "good"),
        ({"succeeded": 3, "failed": 1}, "mixed"),
        ({"failed": 1, "other": 1}, "bad"),
        ({"other": 2}, "other"),
        ({"succeeded": 1, "other": 2}, "good"),
    ],
)
def test_the_tone_of_a_day(counts: dict[str, int], tone: str) -> None:
    day = TODAY - timedelta(days=1)
    made = day_map([ended(day, **counts), ended(TODAY - timedelta(days=400), succeeded=1)], TODAY)
    assert [one.tone for one in made.squares if one.tone != "none"] == [tone]
    assert [one.day.isoformat() for one in made.with_runs] == [day.isoformat()]
