"""How often heartbeats are sent: as the setting says, and never too seldom for the lease."""

from hypothesis import given
from hypothesis import strategies as st

from toban_domain.settings import SETTINGS
from toban_executor.decide.heartbeat_timing import call_seconds, heartbeat_seconds


def test_the_setting_counts_while_the_lease_is_long_enough() -> None:
    assert heartbeat_seconds(1.0, lease_ms=10_000, margin_ms=300) == 1.0
    assert heartbeat_seconds(60.0, lease_ms=3_300, margin_ms=300) == 1.0


@given(st.floats(0.2, 60), st.integers(2_000, 600_000))
def test_three_heartbeats_fit_into_every_lease(wanted: float, lease_ms: int) -> None:
    seconds = heartbeat_seconds(wanted, lease_ms=lease_ms, margin_ms=300)
    assert 0 < seconds <= wanted
    assert 3 * seconds <= (lease_ms - 300) / 1000 + 1e-9


@given(st.floats(0.2, 60), st.integers(int(1000 * SETTINGS["executor_lease_seconds"].minimum), 600_000))
def test_two_frozen_coordinators_cost_no_lease(wanted: float, lease_ms: int) -> None:
    """The worst moment: they freeze right after a grant, and the third one answers."""
    call = call_seconds(lease_ms=lease_ms, margin_ms=300)
    hold = (lease_ms - 300) / 1000
    assert 0.5 <= call <= 1.0, "long enough for an answer"
    assert heartbeat_seconds(wanted, lease_ms=lease_ms, margin_ms=300) + 2 * call <= hold - call / 2
