"""Where the bars and cells of the timeline are, and what its links lead to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from toban_admin_web.adapters.convert import from_proto
from toban_admin_web.decide.api_models import Run, RunCounts, RunGroup, RunInterval
from toban_admin_web.decide.timeline import ROW, SMALLEST, lanes
from toban_admin_web.decide.timeline_cells import CellPicture, cell_picture
from toban_admin_web.decide.timeline_span import LONGEST, MOST_CELLS, MOST_INTERVALS, WIDTH, Span, links
from toban_testing import site_messages

SINCE = datetime(2026, 11, 23, 8, tzinfo=UTC)
UNTIL = SINCE + timedelta(seconds=1000)
SPAN = Span(SINCE, UNTIL)
HOUR = Span(SINCE, SINCE + timedelta(hours=1))


def run(number: int, start: float | None, end: float | None, **given: Any) -> Run:
    """A run from and to so many seconds after SINCE."""
    times = {
        "started_at": None if start is None else site_messages.stamp(-start, SINCE),
        "finished_at": None if end is None else site_messages.stamp(-end, SINCE),
    }
    return from_proto(Run, site_messages.run(number, **times, **given))


def drawn(*runs: Run, by: str = "executor") -> dict[str, tuple[int, list[tuple[int, float, float, int]]]]:
    found = lanes(runs, by=by, span=SPAN, now=UNTIL)
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


def at(seconds: float) -> datetime:
    return SINCE + timedelta(seconds=seconds)


def group(name: str, cells: Mapping[float, Mapping[str, int]], *, others: int = 0, runs: int = 1) -> RunGroup:
    """Second of the begin of an interval → state → runs."""
    intervals = [RunInterval(at=at(second), runs=dict(counts)) for second, counts in cells.items()]
    return RunGroup(name=name, others=others, runs={"SUCCEEDED": runs}, intervals=intervals)


def picture(*groups: RunGroup, since: float = 0) -> CellPicture:
    return cell_picture(RunCounts(since=at(since), until=HOUR.until, groups=list(groups)), HOUR)


def test_cells_have_the_tones_of_the_states_and_the_width_of_the_interval() -> None:
    [lane] = picture(group("b", {60: {"SUCCEEDED": 2, "SKIPPED": 1}, 3540: {"FAILED": 1, "TIMED_OUT": 2}})).lanes
    assert [(cell.column.since, cell.column.until, cell.counts) for cell in lane.cells] == [
        (at(60), at(120), {"good": 2, "neutral": 1}),
        (at(3540), at(3600), {"bad": 3}),
    ]
    assert [cell.column.width for cell in lane.cells] == [pytest.approx(WIDTH / 60, abs=0.2)] * 2
    assert list(lane.paths) == ["good", "neutral", "bad"] and lane.most == 3


def test_cells_are_cut_by_the_span() -> None:
    span = Span(at(90), at(3630))
    [lane] = cell_picture(
        RunCounts(since=at(90), until=at(3630), groups=[group("b", {60: {"FAILED": 1}, 3600: {"FAILED": 1}})]), span
    ).lanes
    assert [(cell.column.since, cell.column.until) for cell in lane.cells] == [(at(90), at(120)), (at(3600), at(3630))]
    assert lane.cells[0].column.x == 0


def test_lanes_are_by_name_and_the_others_have_a_scale_of_their_own() -> None:
    found = picture(
        group("b", {0: {"FAILED": 3}}, runs=5),
        group("a", {0: {"FAILED": 2}}, runs=4),
        group("", {0: {"FAILED": 90}}, others=7, runs=99),
    )
    assert [(lane.name, lane.others, lane.most) for lane in found.lanes] == [("a", 0, 2), ("b", 0, 3), ("", 7, 90)]
    assert (found.peak, found.runs, found.known) == (3, 108, SINCE)
    assert picture(since=1800).known == at(1800) and picture(since=-5).known == SINCE


def test_one_failure_among_many_is_seen_and_no_bar_is_too_high() -> None:
    [lane] = picture(group("b", {0: {"SUCCEEDED": 999, "FAILED": 1}})).lanes
    assert lane.paths["bad"].startswith("M0 ") and "v2h" in lane.paths["bad"]
    assert all(float(one.split()[1].split("h")[0]) >= 0 for one in lane.paths.values())


@pytest.mark.parametrize("minutes", [1, 4, 7, 37, 60, 90, 360, 1440, 4000, 44640, 600000])
def test_cells_and_grid_fill_the_span_and_are_few(minutes: int) -> None:
    span = Span(at(17.5), at(17.5) + timedelta(minutes=minutes))
    intervals = span.intervals()
    assert span.length / span.cell <= MOST_CELLS and len(intervals) <= MOST_INTERVALS + 1
    assert (intervals[0].since, intervals[-1].until) == (span.since, span.until)
    assert all(left.until == right.since > left.since for left, right in pairwise(intervals))
    assert (intervals[0].x, intervals[-1].x + intervals[-1].width) == (0, pytest.approx(WIDTH))
    assert not intervals[0].label and all(one.since.second == 0 for one in intervals if one.label)


def test_the_grid_of_an_hour_and_of_days() -> None:
    span = Span(at(420), at(4020))
    assert [f"{one.since:%H:%M}" for one in span.intervals() if one.label] == [
        f"08:{minute}0" for minute in range(1, 6)
    ] + ["09:00"]
    assert not span.days and Span(SINCE, SINCE + timedelta(days=8)).days
    assert span.cell == timedelta(seconds=60)


def test_what_the_buttons_lead_to() -> None:
    now = at(4000)
    found = links(HOUR, now)
    assert found["closer"] == Span(at(900), at(2700))
    assert found["earlier"] == Span(at(-1800), at(1800))
    assert found["later"] == Span(at(400), at(4000))
    assert found["wider"] == Span(at(4000 - 7200), at(4000))
    assert "later" not in links(Span(SINCE, now), now)
    assert "closer" not in links(Span(SINCE, at(300)), now)
    assert "wider" not in links(Span(now - LONGEST, now), now)
