"""The map of coming load: where its minutes are, and which of them are crowded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from toban_admin_web.decide.api_models import ComingLoad, LoadMinute
from toban_admin_web.decide.load_map import LABEL, STEP, load_map, thresholds

BEGIN = datetime(2026, 11, 29, 18, tzinfo=UTC)


def load(slots: dict[int, int]) -> ComingLoad:
    minutes = [LoadMinute(at=BEGIN + timedelta(minutes=one), slots=many) for one, many in slots.items()]
    return ComingLoad(read_at=BEGIN, begin=BEGIN, minutes=minutes, crowded=[], schedules=1, left_out=0, unreadable=0)


def test_a_row_for_each_hour_and_a_place_for_each_minute() -> None:
    found = load_map(load({0: 10, 1: 9, 2: 4, 61: 1}))
    assert found is not None and len(found.rows) == 24
    first, second = found.rows[:2]
    assert [(cell.x, cell.tone) for cell in first.cells] == [
        (LABEL, "crowded"),
        (LABEL + STEP, "busy"),
        (LABEL + 2 * STEP, "low"),
    ]
    assert (first.slots, first.most and first.most.slots) == (23, 10)
    assert (second.at, second.y, second.cells[0].x) == (BEGIN + timedelta(hours=1), STEP, LABEL + STEP)
    assert found.rows[2].most is None and found.rows[23].at == BEGIN + timedelta(hours=23)


def test_nothing_is_no_map() -> None:
    assert load_map(load({})) is None


def test_what_every_minute_has_crowds_none() -> None:
    def of(slots: dict[int, int]) -> tuple[int, int]:
        return thresholds({BEGIN + timedelta(minutes=one): many for one, many in slots.items()})

    assert of({0: 500}) == (5, 10)
    assert of(dict.fromkeys(range(1440), 100) | {7: 1000}) == (200, 300)
    assert of(dict.fromkeys(range(600), 100)) == (5, 10)
