"""Delays after failed sign-ins, and how long a session lasts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.people.sign_in import (
    FORGET,
    FREE,
    IDLE,
    MOST,
    MOST_OF_ACCOUNT,
    Failures,
    ThrottleKeys,
    after_failure,
    session_is_good,
    wait,
)

NOW = datetime(2031, 3, 1, tzinfo=UTC)


def test_five_failures_are_free_and_then_the_delay_doubles() -> None:
    found: Failures | None = None
    delays = []
    for _ in range(FREE + 4):
        found = after_failure(found, NOW, of_account=False)
        delays.append(wait([found], NOW).total_seconds())
    assert delays == [0, 0, 0, 0, 0, 1, 2, 4, 8]


@given(st.lists(st.integers(0, 7200), max_size=60), st.booleans())
def test_delays_are_bounded_and_forgotten(gaps: list[int], of_account: bool) -> None:
    now, found = NOW, None
    for gap in gaps:
        now += timedelta(seconds=gap)
        found = after_failure(found, now, of_account=of_account)
        assert timedelta(0) <= wait([found], now) <= (MOST_OF_ACCOUNT if of_account else MOST)
    if found is not None:
        later = after_failure(found, now + FORGET + timedelta(seconds=1), of_account=of_account)
        assert later.count == 1


@given(st.integers(0, 10**6))
def test_others_never_delay_an_account_at_an_address_that_it_knows(failures: int) -> None:
    attacked = Failures(failures, NOW, NOW + MOST_OF_ACCOUNT)
    elsewhere = ThrottleKeys.of("root", "203.0.113.9").counted(known=False)
    beside = ThrottleKeys.of("eve", "192.0.2.1").counted(known=False)
    stored = dict.fromkeys((*elsewhere, *beside), attacked)
    known = ThrottleKeys.of("root", "192.0.2.1").counted(known=True)
    assert wait([stored[key] for key in known if key in stored], NOW) <= timedelta(0)


def test_a_session_ends_idle_late_or_revoked() -> None:
    def good(*, used: timedelta = timedelta(0), left: timedelta = timedelta(hours=1), revoked: bool = False) -> bool:
        return session_is_good(last_used_at=NOW - used, ends_at=NOW + left, revoked=revoked, now=NOW)

    assert good() and good(used=IDLE - timedelta(seconds=1))
    assert not good(used=IDLE) and not good(left=timedelta(0)) and not good(revoked=True)
