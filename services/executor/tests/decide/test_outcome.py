"""What ends of attempts mean; an outcome waits for its lines and is returned once, early only after the timeout."""

from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.outcome import AttemptKey, OutcomeKind, Reason
from toban_executor.decide.models import AttemptEnd, Report
from toban_executor.decide.outcome import OUTCOME_TIMEOUT_SECONDS, PendingOutcomes, outcome_of


@pytest.mark.parametrize(
    ("fields", "kind", "reason", "summary"),
    [
        ({"exit_code": 0}, OutcomeKind.SUCCEEDED, Reason.NONE, ""),
        ({"exit_code": 2}, OutcomeKind.FAILED, Reason.EXIT_CODE, "exit code 2"),
        ({"exit_code": 2, "step": 1, "steps": 3}, OutcomeKind.FAILED, Reason.EXIT_CODE, "step 2 of 3: exit code 2"),
        ({"signal": 11}, OutcomeKind.FAILED, Reason.SIGNAL, "killed by SIGSEGV (11)"),
        ({"signal": 15, "cause": "timeout", "reason": "slow"}, OutcomeKind.TIMED_OUT, Reason.TIMEOUT, "slow"),
        ({"exit_code": 0, "cause": "cancel", "reason": "x"}, OutcomeKind.CANCELED, Reason.CANCELED, "x"),
        ({"cause": "spawn_failed", "reason": "no"}, OutcomeKind.FAILED, Reason.SPAWN_FAILED, "no"),
        ({"signal": 9, "cause": "lease", "reason": "l"}, OutcomeKind.FAILED, Reason.CONTINUATION_REFUSED, "l"),
        ({"signal": 9, "cause": "shutdown", "reason": "s"}, OutcomeKind.FAILED, Reason.FORCED_SHUTDOWN, "s"),
        ({"cause": "guard_lost", "reason": "g"}, OutcomeKind.FAILED, Reason.LEASE_LOST, "g"),
    ],
)
def test_outcomes(fields: dict[str, Any], kind: OutcomeKind, reason: Reason, summary: str) -> None:
    outcome = outcome_of(AttemptEnd(key=AttemptKey(1, 1), finished_ns=10**18, **fields))
    assert (outcome.kind, outcome.reason, outcome.error_summary) == (kind, reason, summary)
    assert outcome.finished_at.tzinfo is UTC


def report(number: int) -> Report:
    return Report(key=AttemptKey(number, 100 + number), seq=2)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(0, 5)),
        st.tuples(st.just("stored"), st.integers(0, 5)),
        st.tuples(st.just("refused"), st.floats(0, OUTCOME_TIMEOUT_SECONDS)),
    ),
    max_size=40,
)


@given(steps)
def test_each_outcome_comes_once_and_none_before_the_timeout_of_the_disk(
    steps: list[tuple[str, int | float]],
) -> None:
    it, now = PendingOutcomes(), 0.0
    since: dict[AttemptKey, float] = {}
    given_back: list[AttemptKey] = []
    for kind, value in steps:
        if kind == "wait":
            one = report(len(since) + int(value) * 1000)
            since[one.key] = now
            it.wait(one, now)
        elif kind == "stored":
            keys = [one.key for one in it.waiting][: int(value)]
            assert [one.key for one in it.stored(keys)] == keys
            given_back += keys
        else:
            now += float(value)
            overdue = [one.key for one in it.overdue(now)]
            assert all(now - since[key] >= OUTCOME_TIMEOUT_SECONDS for key in overdue)
            given_back += overdue
            assert all(now - since[one.key] < OUTCOME_TIMEOUT_SECONDS for one in it.waiting)
    given_back += [one.key for one in it.all()]
    assert sorted(given_back) == sorted(since)
    assert (it.waiting, it.all()) == ([], [])


def test_what_was_not_waited_for_is_nothing() -> None:
    it = PendingOutcomes()
    it.wait(report(1), 0.0)
    assert it.stored([AttemptKey(9, 9)]) == []
    assert it.stored([AttemptKey(1, 101)] * 2) == [report(1)]
