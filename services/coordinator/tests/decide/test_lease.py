"""Who is pinged, detached and fenced (docs/fencing.md 3.8): I7 as a property."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.executors.lease import ExecutorRow, FencePlan, Silence, plan, watch
from toban_domain.lease import ExecutorState
from toban_fencing.executor_lease import take_seconds

SILENCE = Silence(heartbeat_ttl=5.0, grace=5.0)
ROW = ExecutorRow(
    cluster="c/1", incarnation="a", state=ExecutorState.ON, grant_seq=1, lease_ms=10_000, last_heartbeat=1.0
)


def fenced(rows, now, unanswered=None):
    return plan(rows, unanswered=unanswered or {}, now=now, silence=SILENCE).fence


def test_a_still_grant_is_fenced_after_the_whole_lease():
    seen = watch({}, [ROW], read_returned_at=100.0)
    seen = watch(seen, [ROW], read_returned_at=110.5)
    assert fenced(seen, 110.5) == ()
    assert fenced(seen, 110.52) == (FencePlan(incarnation="a", grant_seq=1, reason="no grant for 10.51 s"),)


@pytest.mark.parametrize("state", [state for state in ExecutorState if state is not ExecutorState.OFF])
def test_no_state_of_a_row_shortens_the_wait(state):
    """Least of all `cut`, which waits for just this: the executor may run jobs until its lease ends."""
    row = replace(ROW, state=state)
    seen = watch(watch({}, [row], read_returned_at=100.0), [row], read_returned_at=110.5)
    assert fenced(seen, 110.5) == ()
    assert fenced(seen, 110.52)


def test_another_cluster_or_counter_begins_the_wait_again():
    for change in ({"grant_seq": 2}, {"cluster": "c/2"}):
        seen = watch({}, [ROW], read_returned_at=100.0)
        seen = watch(seen, [replace(ROW, **change)], read_returned_at=105.0)
        assert fenced(seen, 112.0) == ()
        assert fenced(seen, 115.6)


def test_an_incarnation_that_is_gone_is_forgotten():
    assert watch(watch({}, [ROW], read_returned_at=1.0), [], read_returned_at=2.0) == {}


def test_attested_death_does_not_wait():
    row = replace(ROW, attested_reason="the node has booted since")
    seen = watch({}, [row], read_returned_at=100.0)
    assert fenced(seen, 100.0)[0].reason == "attested: the node has booted since"


@pytest.mark.seed(108)
def test_silence_is_pinged_three_times_before_a_detach():
    seen = watch({}, [ROW], read_returned_at=100.0)
    assert plan(seen, unanswered={}, now=109.9, silence=SILENCE).ping == ()
    assert plan(seen, unanswered={"a": 2}, now=110.0, silence=SILENCE).ping == ("a",)
    last = plan(seen, unanswered={"a": 3}, now=110.0, silence=SILENCE)
    assert (last.ping, last.detach) == ((), ("a",))


@pytest.mark.seed(111)
def test_a_detached_one_that_reports_again_comes_back():
    row = replace(ROW, state=ExecutorState.DETACHED)
    seen = watch({}, [row], read_returned_at=100.0)
    assert plan(seen, unanswered={}, now=104.9, silence=SILENCE).rejoin == ("a",)
    assert plan(seen, unanswered={}, now=105.1, silence=SILENCE).rejoin == ()


READS = st.lists(st.tuples(st.floats(0.01, 6.0), st.booleans()), max_size=40)


@given(reads=READS)
def test_no_executor_is_fenced_within_a_lease_of_a_grant(reads):
    """Whatever the rhythm of reads: between the last grant that a read can have missed and a fence lies a whole lease."""
    now, granted_at, seq, seen = 100.0, 100.0, 1, {}
    for pause, grant in reads:
        now += pause
        if grant:
            seq, granted_at = seq + 1, now
        seen = watch(seen, [replace(ROW, grant_seq=seq)], read_returned_at=now)
        if fenced(seen, now):
            assert now - granted_at >= take_seconds(ROW.lease_ms)
