"""Attempts that PostgreSQL holds for an executor which does not name them."""

from typing import Any

import pytest

from toban_coordinator.decide.runs.reconcile import (
    FINISHED_SECONDS,
    HEARTBEATS,
    QUARANTINE_SECONDS,
    Unresolved,
    lost_result,
    plan,
    result_refused,
)
from toban_domain.outcome import AttemptKey
from toban_domain.run import TRANSITIONS, RunState
from toban_domain.transitions import Finish, LiveRun, Orphan

KEY = AttemptKey(7, 70)
HELD = (RunState.ASSIGNED, RunState.RUNNING, RunState.CANCEL_REQUESTED)


def noted(**fields: Any) -> Unresolved:
    given = {
        "key": KEY,
        "state": RunState.RUNNING,
        "incarnation": "i",
        "worker_id": 1,
        "address": "h:1",
        "quarantined": False,
        "heartbeats": HEARTBEATS,
        "seconds": 1.0,
    }
    return Unresolved(**{**given, **fields})


def live(state: RunState, token: int = KEY.token) -> LiveRun:
    return LiveRun(
        id=KEY.run_id,
        state=state,
        token=token,
        incarnation="i",
        attempt=1,
        max_attempts=1,
        lost_count=0,
        max_lost=3,
        definition_id=1,
        definition_version=1,
    )


def test_one_heartbeat_is_not_enough() -> None:
    one = plan([noted(heartbeats=HEARTBEATS - 1)], {}, now=0.0)
    assert not (one.ask or one.lost or one.refused or one.done)


def test_the_executor_is_asked_and_then_has_time_to_report() -> None:
    one = noted()
    assert plan([one], {}, now=50.0).ask == [one]
    waiting = plan([one], {KEY: 50.0}, now=50.0 + FINISHED_SECONDS - 0.1)
    assert not (waiting.ask or waiting.lost)
    assert plan([one], {KEY: 50.0}, now=50.0 + FINISHED_SECONDS).lost == [one]


def test_a_cancel_is_asked_for_by_its_own_loop_and_ends_the_same_way() -> None:
    one = noted(state=RunState.CANCEL_REQUESTED)
    assert plan([one], {}, now=0.0).ask == []
    assert plan([one], {KEY: 0.0}, now=FINISHED_SECONDS).lost == [one]


def test_what_is_quarantined_is_never_lost() -> None:
    early, late = (noted(quarantined=True, seconds=seconds) for seconds in (QUARANTINE_SECONDS - 1, QUARANTINE_SECONDS))
    assert plan([early, late], {KEY: 0.0}, now=10_000.0).refused == [late]
    assert plan([early, late], {KEY: 0.0}, now=10_000.0).lost == []


def test_what_is_not_held_any_more_is_forgotten() -> None:
    assert plan([noted(state=None), noted(state=None, quarantined=True)], {KEY: 0.0}, now=99.0).done == [KEY, KEY]


@pytest.mark.parametrize("state", list(RunState))
def test_moves_follow_the_table_of_transitions(state: RunState) -> None:
    for move in (lost_result(live(state), KEY)[0], result_refused(live(state), KEY, "no")):
        assert (move is not None) is (state in HELD)
        if isinstance(move, Orphan):
            assert RunState.ORPHANED in TRANSITIONS[state]
        elif isinstance(move, Finish):
            assert move.target in TRANSITIONS[state]


def test_another_token_is_left_alone() -> None:
    assert lost_result(live(RunState.RUNNING, token=71), KEY) == (None, None)
    assert result_refused(live(RunState.RUNNING, token=71), KEY, "no") is None
