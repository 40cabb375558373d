"""What a job finds in its environment."""

from datetime import UTC, datetime

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.environment import job_environment, parameters
from toban_executor.decide.models import StartOrder

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


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
