"""The table of transitions, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.outcome import LOST_REASONS, OutcomeKind, Reason
from toban_domain.run import HELD, LIVE, MEANING, TERMINAL, TRANSITIONS, RunState, can_move, diagram

S = RunState


@pytest.mark.seed(57, 153)
def test_every_state_is_in_the_table_with_a_meaning() -> None:
    assert set(TRANSITIONS) == set(MEANING) == set(RunState)
    assert all(MEANING.values())


def test_terminal_states() -> None:
    assert {S.SUCCEEDED, S.FAILED, S.TIMED_OUT, S.CANCELED, S.SKIPPED, S.EXPIRED} == TERMINAL
    assert set(RunState) == LIVE | TERMINAL
    assert HELD < LIVE


def reachable(start: RunState) -> set[RunState]:
    found, todo = set[RunState](), [start]
    while todo:
        state = todo.pop()
        if state not in found:
            found.add(state)
            todo += TRANSITIONS[state]
    return found


def test_everything_begins_in_pending_and_can_end() -> None:
    assert reachable(S.PENDING) == set(RunState)
    for state in LIVE:
        assert reachable(state) & TERMINAL


@given(st.lists(st.sampled_from(RunState), max_size=30))
def test_no_sequence_of_transitions_leaves_a_terminal_state(targets: list[RunState]) -> None:
    state = S.PENDING
    for target in targets:
        before = state
        if can_move(state, target):
            state = target
        assert before not in TERMINAL or state is before


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        # An outcome implies the start.
        (S.ASSIGNED, S.SUCCEEDED, True),
        # Only a run that an executor never had may skip the proof that its processes are gone.
        (S.RUNNING, S.CANCELED, False),
        (S.RUNNING, S.CANCEL_REQUESTED, True),
        (S.CANCEL_REQUESTED, S.PENDING, False),
        (S.CANCEL_REQUESTED, S.ORPHANED, False),
        # The late result of the same token.
        (S.ORPHANED, S.SUCCEEDED, True),
        (S.ORPHANED, S.RUNNING, False),
        # A run that ever started is never late.
        (S.RUNNING, S.SKIPPED, False),
        (S.PENDING, S.RUNNING, False),
        (S.SUCCEEDED, S.FAILED, False),
        (S.PENDING, S.PENDING, False),
    ],
)
def test_moves_that_matter(source: RunState, target: RunState, allowed: bool) -> None:
    assert can_move(source, target) is allowed


def test_every_outcome_is_a_state() -> None:
    assert {S(kind) for kind in OutcomeKind} <= TERMINAL


def test_the_diagram_has_every_move_once() -> None:
    lines = diagram().splitlines()
    assert len(lines) == len(set(lines)) == 2 + sum(map(len, TRANSITIONS.values())) + len(TERMINAL)
    assert "    ORPHANED --> PENDING" in lines


def test_reasons_that_use_no_retry() -> None:
    assert {Reason.CONTINUATION_REFUSED, Reason.LEASE_LOST, Reason.FORCED_SHUTDOWN} == LOST_REASONS
