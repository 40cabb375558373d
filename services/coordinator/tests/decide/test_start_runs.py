"""Which times a run on demand may have."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.runs.start_runs import AHEAD, LATE, refusal

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@given(st.timedeltas(min_value=timedelta(days=-4000), max_value=timedelta(days=4000)))
def test_a_time_is_refused_exactly_outside_the_bounds(away: timedelta) -> None:
    why = refusal(NOW + away, NOW)
    assert (why == "") == (-LATE <= away <= AHEAD)
    assert ("past" in why) == (away < -LATE)
    assert ("ahead" in why) == (away > AHEAD)
