"""Breakers and health signals as steps: what opens, probes and closes, how a limit shrinks and recovers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.limits.breaker import (
    FACTORS,
    Breaker,
    Ended,
    Signal,
    counted_since,
    factor_at,
    post,
    reduced,
    step,
)
from toban_domain.concurrency import BreakerSpec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = BreakerSpec(failure_ratio=0.5, min_runs=4, window_seconds=300, open_seconds=60)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def breaker(state: str, **fields: object) -> Breaker:
    return replace(Breaker(state=state, since=NOW), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("succeeded", "failed", "opens"),
    [(0, 3, False), (2, 2, True), (3, 2, False), (0, 4, True), (400, 399, False), (0, 0, False)],
)
@pytest.mark.parametrize("before", [None, breaker("closed")])
def test_it_opens_at_its_ratio_of_enough_runs(before: Breaker | None, succeeded: int, failed: int, opens: bool) -> None:
    found = step(before, SPEC, Ended(succeeded=succeeded, failed=failed), after(9))
    if opens:
        assert found is not None and (found.state, found.since, found.by_hand) == ("open", after(9), False)
        assert found.reason == f"{failed} of {succeeded + failed} runs failed within 300 s"
    else:
        assert found is before


def test_it_probes_after_its_time_and_the_probe_decides() -> None:
    opened = breaker("open")
    assert step(opened, SPEC, Ended(failed=99), after(59)) is opened
    probing = step(opened, SPEC, Ended(failed=99), after(60))
    assert probing is not None and (probing.state, probing.since) == ("half_open", after(60))
    assert step(probing, SPEC, Ended(), after(9999)) is probing
    assert (again := step(probing, SPEC, Ended(succeeded=1, failed=1), after(70))) and again.state == "open"
    closed = step(probing, SPEC, Ended(succeeded=1), after(70))
    assert closed is not None and (closed.state, closed.since) == ("closed", after(70))


def test_what_an_operator_opened_stays_open() -> None:
    by_hand = breaker("open", by_hand=True)
    assert step(by_hand, SPEC, Ended(succeeded=99), after(10**6)) is by_hand


def test_failures_from_before_its_state_count_no_more() -> None:
    assert counted_since(None, SPEC, NOW) == after(-300)
    assert counted_since(breaker("closed", since=after(-20)), SPEC, NOW) == after(-20)
    assert counted_since(breaker("closed", since=after(-900)), SPEC, NOW) == after(-300)


@pytest.mark.parametrize("state", ["open", "half_open"])
def test_a_job_without_a_breaker_any_more_is_not_stopped_for_ever(state: str) -> None:
    found = step(breaker(state), BreakerSpec(), Ended(failed=9), NOW)
    assert found is not None and found.state == "closed"


EVENTS = st.lists(st.tuples(st.integers(1, 200), st.integers(0, 9), st.integers(0, 9)), max_size=60)


@given(EVENTS)
def test_it_never_stays_open_longer_than_its_time_and_never_closes_without_a_success(
    events: list[tuple[int, int, int]],
) -> None:
    found: Breaker | None = None
    now = NOW
    for seconds, succeeded, failed in events:
        now += timedelta(seconds=seconds)
        before, found = found, step(found, SPEC, Ended(succeeded=succeeded, failed=failed), now)
        if before is not None and before.state == "open":
            assert found is not None and found.state in ("open", "half_open")
            assert (found.state == "open") == (now - before.since < timedelta(seconds=60))
        if found is not None and found.state == "closed" and before is not None and before.state != "closed":
            assert before.state == "half_open" and succeeded and not failed
        if found != before:
            assert found is not None and found.since == now


LEVELS = st.lists(
    st.tuples(st.sampled_from(sorted(FACTORS)), st.integers(0, 900), st.integers(1, 600)), min_size=1, max_size=40
)


@given(LEVELS)
def test_a_limit_under_signals_never_grows_faster_than_it_may(posts: list[tuple[str, int, int]]) -> None:
    signal: Signal | None = None
    now = NOW
    for level, seconds, ttl in posts:
        now += timedelta(seconds=seconds)
        left = factor_at(signal, now)
        signal = post(signal, level, now, ttl_seconds=ttl)
        assert factor_at(signal, now) == min(left, FACTORS[level])
        last = factor_at(signal, now)
        for later in range(0, 2 * ttl, max(1, ttl // 4)):
            here = factor_at(signal, now + timedelta(seconds=later))
            assert max(0.5, last - 1e-9) <= here <= min(1.0, last + 0.1 * ttl / 60 + 1e-9)
            if level != "ok" and later <= ttl:
                assert here <= FACTORS[level]
            last = here
        assert factor_at(signal, now + timedelta(seconds=ttl + 300)) == pytest.approx(1.0)


def test_a_signal_that_is_repeated_holds_and_does_not_add_up() -> None:
    signal = None
    for second in range(0, 600, 10):
        signal = post(signal, "soft", after(second), ttl_seconds=30)
        assert factor_at(signal, after(second)) == 0.8
    assert factor_at(signal, after(620 - 1)) == 0.8 and factor_at(signal, after(620 + 60)) == pytest.approx(0.9)


def test_after_hard_soft_lets_it_recover_to_its_own_share() -> None:
    signal = post(post(None, "hard", NOW, ttl_seconds=600), "soft", after(60), ttl_seconds=600)
    assert [round(factor_at(signal, after(60 + s)), 2) for s in (0, 60, 120, 180, 600)] == [0.5, 0.6, 0.7, 0.8, 0.8]


@pytest.mark.parametrize(
    ("limit", "factor", "left"),
    [(10, 0.8, 8), (10, 0.5, 5), (3, 0.8, 2), (1, 0.5, 1), (0, 0.5, 0), (-1, 0.5, -1), (10, 1.0, 10)],
)
def test_at_least_one_run_goes_on(limit: int, factor: float, left: int) -> None:
    assert reduced(limit, factor) == left
