"""Why runs wait for a limit, and what is offered for it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from toban_admin_web.decide.limit_state import ACTIONS, WHYS, actions, why_waits


@dataclass
class Limit:
    """As of coordinators."""

    name: str = "job:etl"
    limit: int = 10
    effective: int = 10
    held: int = 10
    source: str = "definition"
    breaker: str = ""
    signal: str = ""


CASES = [
    (Limit(), "full"),
    (Limit(held=4), "turn"),
    (Limit(effective=5, held=5), "reduced"),
    (Limit(effective=5, held=4), "turn"),
    (Limit(limit=-1, effective=-1, held=0), "stopped"),
    (Limit(effective=-1, breaker="open"), "open"),
    (Limit(effective=1, held=1, breaker="half_open"), "half_open"),
    (Limit(breaker="closed"), "full"),
    (Limit(name="pool:x", limit=0, effective=0, held=0), "no_pool"),
    (Limit(limit=0, effective=0, held=3), "turn"),
]


@pytest.mark.parametrize(("limit", "why"), CASES)
def test_why_runs_wait(limit: Limit, why: str) -> None:
    assert why_waits(limit) == why


def test_every_reason_has_a_case() -> None:
    assert {why for _limit, why in CASES} == set(WHYS)


@pytest.mark.parametrize(
    ("limit", "offered"),
    [
        (Limit(), "set open signal"),
        (Limit(source="operator"), "set reset open signal"),
        (Limit(breaker="open"), "set reset close signal"),
        (Limit(breaker="half_open"), "set reset open close signal"),
        (Limit(signal="soft"), "set reset open signal"),
        (Limit(name="pool:x", limit=0, effective=0), "set open"),
        (Limit(name="scope:account/17", source="operator"), "set reset"),
        (Limit(name='key:etl/"a"'), ""),
        (Limit(name="rate:etl"), ""),
    ],
)
def test_what_is_offered(limit: Limit, offered: str) -> None:
    assert actions(limit) == offered.split()
    assert set(actions(limit)) <= set(ACTIONS)
