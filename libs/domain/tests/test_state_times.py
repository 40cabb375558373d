"""Stays of runs in their states."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_domain.state_times import state_spans

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stays(*changes: tuple[float | None, str], state: str, now: float = 100) -> list[tuple[int | None, str, float]]:
    spans = state_spans([(None if when is None else at(when), to) for when, to in changes], state)
    return [(span.event, span.state, span.lasted(at(now)).total_seconds()) for span in spans]


def test_each_stay_lasts_until_the_next_change_and_the_last_one_until_now() -> None:
    found = stays((0, "PENDING"), (2, "ASSIGNED"), (3, ""), (5, "RUNNING"), state="RUNNING", now=65)
    assert found == [(0, "PENDING", 2), (1, "ASSIGNED", 3), (3, "RUNNING", 60)]


def test_an_ended_run_stays_in_no_state() -> None:
    assert stays((0, "PENDING"), (4, "RUNNING"), (9, "FAILED"), state="FAILED") == [
        (0, "PENDING", 4),
        (1, "RUNNING", 5),
    ]


def test_an_event_that_repeats_the_state_ends_no_stay() -> None:
    assert stays((0, "PENDING"), (3, "PENDING"), (7, "SKIPPED"), state="SKIPPED") == [(0, "PENDING", 7)]


def test_the_last_stay_is_left_out_when_later_events_are_missing() -> None:
    assert stays((0, "PENDING"), (4, "RUNNING"), state="SUCCEEDED") == [(0, "PENDING", 4)]


def test_events_without_time_and_clocks_that_differ() -> None:
    assert stays((None, "PENDING"), (4, "ASSIGNED"), (3.5, "RUNNING"), state="RUNNING", now=3) == [
        (1, "ASSIGNED", 0),
        (2, "RUNNING", 0),
    ]
    assert stays(state="PENDING") == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([(0, "ASSIGNED"), (60, "SUCCEEDED")], [(0, "ASSIGNED", 5), (None, "RUNNING", 55)]),
        ([(0, "ASSIGNED"), (60, "RUNNING"), (60, "SUCCEEDED")], [(0, "ASSIGNED", 5), (1, "RUNNING", 55)]),
        ([(6, "ASSIGNED"), (60, "SUCCEEDED")], [(0, "ASSIGNED", 54)]),
        ([(0, "ASSIGNED"), (4, "PENDING"), (60, "SKIPPED")], [(0, "ASSIGNED", 4), (1, "PENDING", 56)]),
    ],
)
def test_a_run_runs_from_the_start_at_its_executor(changes: list[Any], expected: list[Any]) -> None:
    """Reports of the start and of the end may come together, and the first one never."""
    spans = state_spans([(at(when), to) for when, to in changes], changes[-1][1], [None, at(5)])
    assert [(span.event, span.state, span.lasted(at(60)).total_seconds()) for span in spans] == expected
