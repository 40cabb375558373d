"""Styles of states and groups of states."""

from __future__ import annotations

from toban_admin_web.decide.filters import RunFilter
from toban_admin_web.decide.status_styles import BAD, BUSY, GOOD, NEUTRAL, is_terminal, state_icon, style
from toban_domain.run import RunState


def test_groups_of_states() -> None:
    live = set(RunFilter(state="live").fields()["states"])
    ended = set(RunFilter(state="ended").fields()["states"])
    assert live | ended == {state.value for state in RunState} and not live & ended
    assert set(RunFilter(state="waiting").fields()["states"]) < live
    assert "SUCCEEDED" not in RunFilter(state="unsuccessful").fields()["states"]
    assert all(is_terminal(state) for state in ended) and not any(is_terminal(state) for state in live)


def test_styles() -> None:
    assert [style(one) for one in ("SUCCEEDED", "FAILED", "RUNNING", "unknown")] == [GOOD, BAD, BUSY, NEUTRAL]


def test_states_differ_by_more_than_their_colour() -> None:
    ends = ("SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED", "SKIPPED", "LOST", "RUNNING", "PENDING")
    assert len({state_icon(one) for one in ends}) == len(ends)
    assert [state_icon(one) for one in ("leader", "lost", "draining", "other")] == [
        "circle-check",
        "circle-x",
        "triangle-alert",
        "circle-minus",
    ]
