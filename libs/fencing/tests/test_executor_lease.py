"""The hold side of a lease, and that it ends before the take side begins, whatever the clocks do within their bounds."""

from hypothesis import given
from hypothesis import strategies as st

from toban_fencing.executor_lease import CLOCK_RATE_ERROR, HOLD_MARGIN, HoldSide, Instant, may_fence, observe

seconds = st.floats(0, 1000, allow_nan=False)


def test_nothing_is_valid_before_the_first_grant() -> None:
    lease = HoldSide(lease_ms=10_000, margin_ms=300)
    assert (lease.deadline, lease.valid(Instant(0, 0))) == (None, False)


def test_a_grant_counts_from_the_send() -> None:
    lease = HoldSide(lease_ms=10_000, margin_ms=300)
    lease.granted(Instant(100, 5000))
    assert lease.valid(Instant(109.6, 5009.6))
    assert not lease.valid(Instant(109.8, 5009.8))


def test_the_clock_that_ran_further_decides() -> None:
    lease = HoldSide(lease_ms=10_000, margin_ms=300)
    lease.granted(Instant(100, 5000))
    assert not lease.valid(Instant(100, 5010)), "the virtual machine was paused"
    assert not lease.valid(Instant(110, 4000)), "the wall clock was set back"


def test_a_wall_clock_set_back_ends_no_lease_that_is_renewed() -> None:
    lease = HoldSide(lease_ms=10_000, margin_ms=300)
    lease.granted(Instant(100, 5000))
    lease.granted(Instant(108, 4948))
    assert lease.valid(Instant(117, 4957))
    assert not lease.valid(Instant(118, 4957))


def test_grace_is_at_most_half_of_the_lease() -> None:
    lease = HoldSide(lease_ms=4300, margin_ms=300)
    assert [lease.grace(wanted) for wanted in (0.5, 2.0, 60.0)] == [0.5, 2.0, 2.0]


@given(sends=st.lists(seconds, min_size=1, max_size=8), now=seconds)
def test_late_answers_never_shorten_and_nothing_lives_past_its_last_grant(sends: list[float], now: float) -> None:
    lease = HoldSide(lease_ms=10_000, margin_ms=300)
    for sent in sends:
        lease.granted(Instant(sent, sent + 1e9))
    if now < max(sends) + 9.69:
        assert lease.valid(Instant(now, now + 1e9))
    if now > max(sends) + 9.71:
        assert not lease.valid(Instant(now, now + 1e9))


@given(
    lease_ms=st.integers(1_000, 600_000),
    sent=st.floats(0, 1e6),
    flight=st.floats(0, 100),
    rate=st.floats(-CLOCK_RATE_ERROR, CLOCK_RATE_ERROR),
)
def test_no_fence_before_the_hold_ends(lease_ms: int, sent: float, flight: float, rate: float) -> None:
    """By the executor's clock, taken for the true one; the observer sees the grant at or after its send, by a clock that is off by `rate`."""
    lease = HoldSide(lease_ms=lease_ms, margin_ms=int(HOLD_MARGIN * 1000))
    ends = lease.granted(Instant(sent, sent)).boot
    sighting = observe(None, cluster="c", grant_seq=1, read_returned_at=(sent + flight) * (1 + rate))
    # SIGKILL goes out before that; the rest of both margins is for machines that stall.
    assert not may_fence(sighting, lease_ms=lease_ms, now=(ends + HOLD_MARGIN) * (1 + rate))
