"""The picture of durations: ticks, lines and bars."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.duration_chart import BOTTOM, LEFT, RIGHT, TOP, duration_chart

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def run(number: int, seconds: float | None, state: str = "SUCCEEDED", *, ago: float = 1e7) -> Run:
    began = NOW - timedelta(seconds=ago)
    end = None if seconds is None else began + timedelta(seconds=seconds)
    return Run.model_construct(id=number, state=state, started_at=began, finished_at=end)


@pytest.mark.parametrize(
    ("longest", "ticks"),
    [
        (0, [0, 0.1]),
        (0.25, [0, 0.1, 0.2, 0.3]),
        (1, [0, 0.5, 1]),
        (59, [0, 15, 30, 45, 60]),
        (61, [0, 30, 60, 90]),
        (86_400 * 9, [0, 259_200, 518_400, 777_600]),
    ],
)
def test_ticks_are_round_and_reach_the_longest(longest: float, ticks: list[float]) -> None:
    chart = duration_chart([run(1, longest)], NOW)
    assert chart is not None and [one for one, _ in chart.ticks] == ticks
    assert chart.ticks[0][1] == BOTTOM and chart.ticks[-1][1] == TOP


def test_names_of_near_lines_are_apart() -> None:
    for seconds in (0, 1, 50, 100):
        chart = duration_chart([run(1, seconds), run(2, seconds)], NOW)
        assert chart is not None
        upper, lower = chart.lines
        assert upper.name == "p95" and lower.text_y - upper.text_y >= 14 and upper.y == lower.y


def test_a_run_that_goes_on_has_a_bar_and_is_in_no_line() -> None:
    chart = duration_chart([run(2, None, "RUNNING", ago=30), run(1, 10, "FAILED")], NOW)
    assert chart is not None and [bar.failed for bar in chart.bars] == [True, False]
    assert chart.longest == 30 and {line.seconds for line in chart.lines} == {10}
    only = duration_chart([run(2, None, "RUNNING", ago=30)], NOW)
    assert only is not None and only.lines == () and len(only.times) == 1


def test_many_bars_stay_within_the_axes() -> None:
    chart = duration_chart([run(number, number) for number in range(40, 0, -1)], NOW)
    assert chart is not None and len(chart.times) == 3
    assert chart.bars[0].x == LEFT and chart.bars[-1].x + chart.bars[-1].width <= RIGHT
    assert all(bar.y >= TOP and bar.y + bar.height == pytest.approx(BOTTOM) for bar in chart.bars)
