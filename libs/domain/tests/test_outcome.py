"""Outcomes of attempts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind, Reason

AT = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize("reason", Reason)
def test_only_a_lost_executor_is_lost(reason: Reason) -> None:
    expected = reason in (Reason.CONTINUATION_REFUSED, Reason.LEASE_LOST, Reason.FORCED_SHUTDOWN)
    assert Outcome(kind=OutcomeKind.FAILED, reason=reason, finished_at=AT).lost is expected


def test_outcomes_are_equal_by_value() -> None:
    one, two = (Outcome(kind=OutcomeKind.SUCCEEDED, exit_code=0, finished_at=AT, last_seq=3) for _ in range(2))
    assert one == two
    assert one != Outcome(kind=OutcomeKind.SUCCEEDED, exit_code=0, finished_at=AT, last_seq=4)


def test_a_key_is_run_and_token() -> None:
    assert AttemptKey(12, 7) == (12, 7)
    assert sorted([AttemptKey(2, 1), AttemptKey(1, 9)]) == [(1, 9), (2, 1)]
