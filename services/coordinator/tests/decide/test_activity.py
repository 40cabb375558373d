"""The last day in intervals: what is read next, and what is known of each interval."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.cluster.activity import INTERVAL, INTERVALS, STALE_SECONDS, due, intervals

LAST = 5_000_000


def test_everything_is_read_once_and_the_newest_always() -> None:
    spans = list(due({}, last=LAST, now=0.0))
    assert spans[0] == (LAST - 1, LAST)
    assert sorted(number for first, last in spans for number in range(first, last + 1)) == [
        *range(LAST - INTERVALS + 1, LAST + 1)
    ]
    assert all(later[1] < earlier[0] for earlier, later in itertools.pairwise(spans)), "newest first"
    known = dict.fromkeys(range(LAST - INTERVALS + 1, LAST + 1), 0.0)
    assert list(due(known, last=LAST, now=10.0)) == [(LAST - 1, LAST)]


def test_an_interval_that_was_read_long_ago_is_read_again() -> None:
    known = dict.fromkeys(range(LAST - INTERVALS + 1, LAST + 1), STALE_SECONDS) | {LAST - 100: 0.0}
    [_, (first, last)] = due(known, last=LAST, now=STALE_SECONDS)
    assert first <= LAST - 100 <= last < LAST - 1
    [_, (first, last)] = due(known | {LAST - 2: 0.0, LAST - 100: 1.0}, last=LAST, now=STALE_SECONDS)
    assert first <= LAST - 2 == last


def row(first: int | None, last: int, runs: int, **given: Any) -> dict[str, Any]:
    return {"first": first, "last": last, "runs": runs, "succeeded": runs, "failed": 0, "wait": None, **given}


def test_the_slots_of_a_long_run_count_in_each_interval() -> None:
    ended = {number: [] for number in range(96, 101)} | {
        99: [row(97, 99, 2, in_first=200.0, in_last=60.0), row(None, 99, 3, succeeded=0, in_first=0.0, in_last=0.0)]
    }
    live = [{"first": 98, "runs": 1, "in_first": 30.0}]
    now = 100 * INTERVAL + 100.0
    found = {one.begins_at // INTERVAL: one for one in intervals(ended, live, now=now)}
    busy = {number: round(one.busy * min(INTERVAL, now - one.begins_at)) for number, one in found.items()}
    assert busy == {96: 0, 97: 200, 98: 630, 99: 360, 100: 100}
    assert found[100].busy == 1.0, "the current interval has lasted for 100 s"
    assert (found[99].succeeded, found[99].failed, found[99].other) == (2, 0, 3)


@given(st.integers(-10, 30_000), st.integers(0, 90_000))
def test_no_second_of_a_run_is_lost_or_counted_twice(start: int, length: int) -> None:
    now = 86_000.0
    begun, end = float(start), min(start + length, now)
    first, last = (int(at // INTERVAL) for at in (begun, end))
    in_first = min(end, (first + 1) * INTERVAL) - begun
    one = row(first, last, 1, in_first=in_first, in_last=end - last * INTERVAL if last > first else 0.0)
    ended: dict[int, list[Any]] = {number: [] for number in range(-1, int(now // INTERVAL) + 1)}
    ended[last].append(one)
    found = intervals(ended, [], now=now)
    assert abs(sum(each.busy * max(1.0, min(INTERVAL, now - each.begins_at)) for each in found) - (end - begun)) < 1
