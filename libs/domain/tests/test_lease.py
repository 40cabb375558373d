"""The hold side ends before the take side begins, whatever the clocks do within their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.lease import (
    CLOCK_RATE_ERROR,
    Sighting,
    hold_seconds,
    may_fence,
    observe,
    take_seconds,
)


@given(
    lease_ms=st.integers(1_000, 600_000),
    sent=st.floats(0, 1e6),
    flight=st.floats(0, 100),
    rate=st.floats(-CLOCK_RATE_ERROR, CLOCK_RATE_ERROR),
)
def test_no_fence_before_the_hold_ends(lease_ms: int, sent: float, flight: float, rate: float) -> None:
    """True time: the executor sends at `sent`; the observer sees the grant at or after that, on a clock that runs off by `rate`."""
    seen = sent + flight
    stops = sent + hold_seconds(lease_ms)
    sighting = observe(None, cluster="c", grant_seq=1, read_returned_at=seen * (1 + rate))
    at_stop = stops * (1 + rate)
    assert not may_fence(sighting, lease_ms=lease_ms, now=at_stop)


def test_arithmetic() -> None:
    assert hold_seconds(10_000) == pytest.approx(9.7)
    assert take_seconds(10_000) == pytest.approx(10.51)


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
