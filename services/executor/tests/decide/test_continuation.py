"""When an executor asks whether its attempts may continue, and whom (docs/fencing.md 3.7)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.lease import LEASE_MARGIN_SECONDS
from toban_domain.setting_rules import refusals
from toban_domain.settings import SETTINGS, Settings
from toban_executor.decide.continuation import LOOK_SECONDS, Round, View, answered, plan, step, targets, wait_seconds
from toban_fencing.executor_lease import HOLD_MARGIN, HoldSide

PLAN = plan(hold=9.7, tries=3, interval=0.3)


def view(
    left: float, *, live: bool = True, killable: bool = False, detached: bool = False, deadline: float = 100.0
) -> View:
    return View(deadline=deadline, left=left, live=live, killable=killable, detached=detached)


def tries(state: Round, seen: View, now: float) -> tuple[Round, list[int]]:
    """Every try of a round, none of which is confirmed."""
    made = []
    while True:
        state, number = step(state, seen, PLAN, now)
        if number is None:
            return state, made
        made.append(number)
        now += 1.0
        state = answered(state, PLAN, now - 0.5, confirmed=False)


def test_the_margin_is_the_one_that_executors_keep_back() -> None:
    assert LEASE_MARGIN_SECONDS == HOLD_MARGIN


def test_no_question_before_the_last_window_of_the_lease() -> None:
    assert step(Round(), view(PLAN.window + 0.01), PLAN, 0.0)[1] is None
    assert step(Round(), view(PLAN.window), PLAN, 0.0)[1] == 0


def test_an_attempt_that_gets_a_signal_knows_the_answer_before() -> None:
    assert step(Round(), view(PLAN.half, killable=True), PLAN, 0.0)[1] == 0
    grace = HoldSide(lease_ms=10_000, margin_ms=300).grace(60.0, reserved=PLAN.window)
    assert PLAN.half - PLAN.window >= grace


def test_one_round_for_each_deadline() -> None:
    state, made = tries(Round(), view(2.0), 0.0)
    assert made == [0, 1, 2]
    assert tries(state, view(1.0), 10.0)[1] == []
    assert tries(state, view(2.0, deadline=110.0), 20.0)[1] == [0, 1, 2]


@pytest.mark.seed(63)
def test_a_pause_between_two_tries() -> None:
    state, _ = step(Round(), view(2.0), PLAN, 0.0)
    state = answered(state, PLAN, 0.4, confirmed=False)
    assert step(state, view(1.5), PLAN, 0.69)[1] is None
    assert step(state, view(1.5), PLAN, 0.7)[1] == 1


def test_a_confirmation_ends_the_round() -> None:
    state, _ = step(Round(), view(2.0), PLAN, 0.0)
    state = answered(state, PLAN, 0.1, confirmed=True)
    assert step(state, view(1.5), PLAN, 5.0)[1] is None


def test_nothing_is_asked_without_attempts_or_without_a_lease() -> None:
    assert step(Round(), view(1.0, live=False), PLAN, 0.0)[1] is None
    assert step(Round(), view(0.0), PLAN, 0.0)[1] is None
    assert step(Round(), view(-1.0, detached=True), PLAN, 0.0)[1] is None


def test_a_detached_executor_asks_once_however_long_its_lease_is() -> None:
    state, number = step(Round(), view(9.0, detached=True), PLAN, 0.0)
    assert number == 0
    state = answered(state, PLAN, 0.1, confirmed=True)
    assert step(state, view(9.0, detached=True, deadline=101.0), PLAN, 5.0)[1] is None
    # The end of its lease is another matter.
    assert step(state, view(1.0, detached=True, deadline=101.0), PLAN, 9.0)[1] == 0


@pytest.mark.seed(63)
def test_a_detached_executor_gives_up_after_its_tries() -> None:
    state, made = tries(Round(), view(9.0, detached=True), 0.0)
    assert made == [0, 1, 2]
    assert tries(state, view(9.0, detached=True, deadline=105.0), 50.0)[1] == []


@pytest.mark.seed(97)
def test_each_coordinator_is_asked_once() -> None:
    assert targets(leader="a", subleader="b", others=["a", "c", "b", "d"]) == [
        ("leader", "a"),
        ("subleader", "b"),
        ("other", "c"),
        ("other", "d"),
    ]
    assert targets(leader="", subleader="", others=["c"]) == [("other", "c")]
    assert targets(leader="a", subleader="a", others=["a"]) == [("leader", "a")]
    assert targets(leader="", subleader="", others=[]) == []


def test_the_next_look_is_when_the_window_begins() -> None:
    assert wait_seconds(view(9.0), PLAN, at_most=60.0) == pytest.approx(9.0 - PLAN.window)
    assert wait_seconds(view(9.0), PLAN, at_most=0.5) == 0.5
    assert wait_seconds(view(1.0), PLAN, at_most=0.5) == LOOK_SECONDS


@given(
    st.floats(SETTINGS["executor_lease_seconds"].minimum, 600),
    st.integers(1, 20),
    st.floats(SETTINGS["continuation_retry_interval_seconds"].minimum, 60),
    st.floats(0, 300),
)
def test_tries_and_grace_fit_into_half_of_the_lease(lease: float, count: int, interval: float, wanted: float) -> None:
    """Also where the settings are meant for a longer lease than the one that this incarnation has."""
    hold = lease - LEASE_MARGIN_SECONDS
    made = plan(hold=hold, tries=count, interval=interval)
    assert 1 <= made.tries <= count and made.window <= made.half
    grace = HoldSide(lease_ms=int(lease * 1000), margin_ms=300).grace(wanted, reserved=made.window)
    assert 0 <= grace <= wanted and grace + made.window <= made.half + 1e-3
    settings = Settings(
        {
            "executor_lease_seconds": lease,
            "continuation_retry_count": count,
            "continuation_retry_interval_seconds": interval,
            "heartbeat_interval_seconds": 0.2,
        }
    )
    if not refusals(settings, "continuation_retry_count"):
        assert made.tries == count and math.isclose(made.window, count * (interval + made.call))
