"""Where the bars of the timeline are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from toban_admin_web.adapters.convert import from_proto
from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.timeline import ROW, SMALLEST, WIDTH, lanes
from toban_testing import site_messages

SINCE = datetime(2026, 11, 23, 8, tzinfo=UTC)
UNTIL = SINCE + timedelta(seconds=1000)


def run(number: int, start: float | None, end: float | None, **given: Any) -> Run:
    """A run from and to so many seconds after SINCE."""
    times = {
        "started_at": None if start is None else site_messages.stamp(-start, SINCE),
        "finished_at": None if end is None else site_messages.stamp(-end, SINCE),
    }
    return from_proto(Run, site_messages.run(number, **times, **given))


def drawn(*runs: Run, by: str = "executor") -> dict[str, tuple[int, list[tuple[int, float, float, int]]]]:
    found = lanes(runs, by=by, since=SINCE, until=UNTIL, now=UNTIL)
    return {one.name: (one.height, [(bar.run.id, bar.x, bar.width, bar.y) for bar in one.bars]) for one in found}


def test_bars_are_where_their_times_are() -> None:
    assert drawn(run(1, 100, 300), run(2, 300, None)) == {
        "executor-1": (ROW, [(1, 100.0, 200.0, 0), (2, 300.0, 700.0, 0)])
    }


def test_runs_that_overlap_have_rows_of_their_own() -> None:
    assert drawn(run(3, 250, 400), run(1, 100, 300), run(2, 200, 350)) == {
        "executor-1": (3 * ROW, [(1, 100.0, 200.0, 0), (2, 200.0, 150.0, ROW), (3, 250.0, 150.0, 2 * ROW)])
    }
    assert drawn(run(1, 100, 300), run(2, 200, 350), run(3, 300, 400))["executor-1"][0] == 2 * ROW


def test_bars_end_at_the_edges_and_are_never_invisible() -> None:
    found = drawn(run(1, -500, 100), run(2, 900, 5000), run(3, 999.9, 999.9), run(4, 500, 500))
    [*bars] = found["executor-1"][1]
    assert [(number, x, width) for number, x, width, _ in bars] == [
        (1, 0.0, 100.0),
        (4, 500.0, SMALLEST),
        (2, 900.0, 100.0),
        (3, WIDTH - SMALLEST, SMALLEST),
    ]


def test_by_job_and_what_is_left_out() -> None:
    runs = (
        run(1, 0, 10, job="b"),
        run(2, 0, 10, job="a", executor=""),
        run(3, None, None),
        run(4, -20, -10),
        run(5, 1000, None),
    )
    assert list(drawn(*runs, by="job")) == ["a", "b"]
    assert [bar[0] for bar in drawn(*runs)["executor-1"][1]] == [1]
