"""Rates and durations of the last runs of a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from toban_admin_web.decide.api_models import RunMark
from toban_admin_web.decide.run_summary import percentile, run_summary

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def mark(state: str, seconds: float | None = None) -> RunMark:
    end = None if seconds is None else NOW + timedelta(seconds=seconds)
    return RunMark(id=1, state=state, scheduled_for=NOW, started_at=NOW, finished_at=end)


def test_counts_and_durations() -> None:
    runs = [*(mark("SUCCEEDED", n) for n in range(1, 9)), mark("FAILED", 20), mark("SKIPPED"), mark("RUNNING")]
    found = run_summary(runs)
    assert (found.total, found.succeeded, found.failed, found.live, found.other) == (11, 8, 1, 1, 1)
    assert (found.success, found.p50, found.p95) == (88, 5, 20)


def test_only_runs_without_a_failure_are_a_hundred_in_a_hundred() -> None:
    assert run_summary([mark("SUCCEEDED", 1)] * 1999 + [mark("EXPIRED")]).success == 99
    assert run_summary([mark("SUCCEEDED", 1), mark("CANCELED", 1)]).success == 100
    assert run_summary([mark("TIMED_OUT", 1)]).success == 0


def test_without_ended_runs_there_is_neither_rate_nor_duration() -> None:
    for runs in ([], [mark("RUNNING")], [mark("SKIPPED")]):
        found = run_summary(runs)
        assert (found.success, found.p50, found.p95) == (None, None, None)


@pytest.mark.parametrize(("share", "found"), [(50, 2), (95, 4), (100, 4), (25, 1), (1, 1)])
def test_a_percentile_is_one_of_the_values(share: int, found: float) -> None:
    assert percentile([1, 2, 3, 4], share) == found
