"""What ends mean, and what a job finds in its environment."""

from datetime import UTC, datetime
from typing import Any

import pytest

from toban_domain.outcome import AttemptKey, OutcomeKind, Reason
from toban_executor.decide.environment import job_environment, parameters
from toban_executor.decide.models import AttemptEnd, StartOrder
from toban_executor.decide.outcome import outcome_of

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


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


def test_tobans_own_variables_win() -> None:
    order = StartOrder(
        key=AttemptKey(7, 99),
        attempt=2,
        env={"PATH": "/mine", "TOBAN_FENCE": "1"},
        payload_json='{"fence": 3}',
        timeout_seconds=60,
        slot="S",
    )
    env = job_environment(order, incarnation="i", home="/home/x", now=NOW)
    assert env == {
        "PATH": "/mine",
        "HOME": "/home/x",
        "LANG": "C.UTF-8",
        "TOBAN_PARAM_FENCE": "3",
        "TOBAN_FENCE": "99",
        "TOBAN_RUN_ID": "7",
        "TOBAN_ATTEMPT": "2",
        "TOBAN_SLOT": "S",
        "TOBAN_DEADLINE": "2026-11-21T10:01:00+00:00",
        "TOBAN_INCARNATION": "i",
    }


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        ('{"a": "x", "B_2": 1, "c": 1.5, "d": false}', {"A": "x", "B_2": "1", "C": "1.5", "D": "false"}),
        ('{"a-b": 1, "1a": 1, "l": [], "o": {}, "n": null, "": 1}', {}),
        ('{"nul": "a\\u0000b"}', {}),
        ("[1]", {}),
        ("not json", {}),
        ("", {}),
    ],
)
def test_parameters(payload: str, found: dict[str, str]) -> None:
    assert parameters(payload) == {f"TOBAN_PARAM_{name}": value for name, value in found.items()}
