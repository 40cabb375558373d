"""Where the bars and cells of the timeline are, and what its links lead to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_admin_web.adapters.convert import from_proto
from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.timeline import ROW, SMALLEST, lanes
from toban_admin_web.decide.timeline_cells import MOST_LANES, CellPicture, cell_picture, possible_cuts
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


def counted(*runs: Run, known: float = 0, by: str = "executor") -> CellPicture:
    return cell_picture(runs, by=by, span=HOUR, known=at(known), now=HOUR.until)


def cells_of(picture: CellPicture) -> dict[int, dict[str, int]]:
    """Of the only lane: second of the begin → counts."""
    [lane] = picture.lanes
    return {int((cell.since - SINCE).total_seconds()): dict(cell.counts) for cell in lane.cells}


def ended(number: int, start: float, end: float | None, state: str = "SUCCEEDED", **given: Any) -> Run:
    return run(number, start, end, state=state, **given)


def test_a_run_counts_in_each_cell_that_it_ran_in() -> None:
    picture = counted(
        ended(1, 61, 179), ended(2, 120, 180, "FAILED"), ended(3, 3540, None, "RUNNING"), ended(4, 60, 60)
    )
    assert cells_of(picture) == {60: {"good": 2}, 120: {"good": 1, "bad": 1}, 3540: {"busy": 1}}
    assert (picture.peak, picture.runs, dict(picture.counts)) == (2, 4, {"good": 2, "busy": 1, "bad": 1})
    assert list(picture.lanes[0].paths) == ["good", "busy", "bad"]


def test_what_ran_before_the_known_part_is_not_counted_as_nothing_ran() -> None:
    picture = counted(ended(1, 0, 1800), ended(2, 0, 3600), ended(3, 10, 20), known=1790)
    assert picture.known == at(1800) and picture.runs == 1
    assert min(cells_of(picture)) == 1800 and cells_of(picture)[1800] == {"good": 1}
    assert counted(ended(1, 0, 10), known=3600).lanes == []


def test_runs_over_the_edges_are_in_the_cells_of_the_span() -> None:
    found = cells_of(counted(ended(1, -500, 5000)))
    assert (len(found), min(found), max(found)) == (MOST_CELLS, 0, 3540)


def test_one_failure_among_many_is_seen_and_no_bar_is_too_high() -> None:
    picture = counted(*(ended(number, 5, 6) for number in range(1, 1000)), ended(1000, 5, 6, "FAILED"))
    [lane] = picture.lanes
    assert lane.paths["bad"].startswith("M0 ") and "v2h" in lane.paths["bad"]
    assert all(float(one.split()[1].split("h")[0]) >= 0 for one in lane.paths.values())


def test_lanes_beyond_the_most_are_one() -> None:
    runs = [ended(number, 0, 10, job=f"job-{number % 40:02}") for number in range(1, 101)]
    picture = counted(*runs, by="job")
    assert len(picture.lanes) == MOST_LANES + 1 and picture.lanes[0].name == "job-00"
    assert (picture.lanes[-1].name, picture.lanes[-1].others) == ("", 40 - MOST_LANES)
    assert sum(lane.runs for lane in picture.lanes) == picture.runs == 100
    assert (picture.peak, picture.lanes[-1].most) == (3, 32)
    few = counted(*runs[: MOST_LANES + 1], by="job")
    assert [lane.name for lane in few.lanes] == [f"job-{number:02}" for number in range(1, MOST_LANES + 2)]


@pytest.mark.parametrize("minutes", [1, 4, 7, 37, 60, 90, 360, 1440, 4000, 44640, 600000])
def test_cells_and_grid_fill_the_span_and_are_few(minutes: int) -> None:
    span = Span(at(17.5), at(17.5) + timedelta(minutes=minutes))
    edges, intervals = span.edges(), span.intervals()
    assert (edges[0], edges[-1]) == (span.since, span.until) and list(edges) == sorted(set(edges))
    assert len(edges) <= MOST_CELLS + 2 and len(intervals) <= MOST_INTERVALS + 1
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


def test_times_after_which_all_may_be_known() -> None:
    runs = [ended(number, number * 10, None) for number in range(100)]
    assert possible_cuts(runs, HOUR, HOUR.until) == (at(500), at(2050))
    assert possible_cuts([run(1, None, None)], HOUR, HOUR.until) == (at(0), at(1800))
    assert possible_cuts([ended(1, -90, None)], HOUR, at(100)) == (at(0), at(50))
