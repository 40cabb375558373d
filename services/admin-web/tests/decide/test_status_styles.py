"""Styles of states and groups of states."""

from __future__ import annotations

from toban_admin_web.decide.filters import RunFilter
from toban_admin_web.decide.status_styles import BAD, BUSY, GOOD, NEUTRAL, is_terminal, style
from toban_domain.run import RunState


def test_groups_of_states() -> None:
    live = set(RunFilter(state="live").fields()["states"])
    ended = set(RunFilter(state="ended").fields()["states"])
    assert live | ended == {state.value for state in RunState} and not live & ended
    assert "SUCCEEDED" not in RunFilter(state="unsuccessful").fields()["states"]
    assert all(is_terminal(state) for state in ended) and not any(is_terminal(state) for state in live)


def test_styles() -> None:
    assert [style(one) for one in ("SUCCEEDED", "FAILED", "RUNNING", "unknown")] == [GOOD, BAD, BUSY, NEUTRAL]
