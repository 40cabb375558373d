"""The take side of a lease: what begins its wait again, and how long it is. That the hold side ends before is tested beside that side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_fencing.executor_lease import Sighting, may_fence, observe, take_seconds


def test_arithmetic() -> None:
    assert take_seconds(10_000) == pytest.approx(10.51)
    assert take_seconds(600_000) == pytest.approx(601.1), (
        "the rates of two clocks differ by no more than CLOCK_RATE_ERROR"
    )


@pytest.mark.parametrize(
    ("cluster", "grant_seq", "since"),
    [("c", 5, 100.0), ("c", 6, 150.0), ("c", 4, 150.0), ("other", 5, 150.0)],
)
def test_any_change_starts_the_wait_again(cluster: str, grant_seq: int, since: float) -> None:
    first = Sighting(cluster="c", grant_seq=5, since=100.0)
    assert observe(first, cluster=cluster, grant_seq=grant_seq, read_returned_at=150.0).since == since


@given(st.lists(st.tuples(st.floats(0.01, 20), st.booleans()), max_size=40))
def test_a_fence_needs_a_whole_lease_of_standing_still(steps: list[tuple[float, bool]]) -> None:
    now, grant_seq, changed_at = 0.0, 1, 0.0
    sighting = observe(None, cluster="c", grant_seq=1, read_returned_at=0.0)
    for pause, granted in steps:
        now += pause
        if granted:
            grant_seq, changed_at = grant_seq + 1, now
        sighting = observe(sighting, cluster="c", grant_seq=grant_seq, read_returned_at=now)
        assert may_fence(sighting, lease_ms=10_000, now=now) == (now - changed_at >= take_seconds(10_000))
