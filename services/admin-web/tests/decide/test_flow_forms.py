"""Forms of webhooks and hooks."""

from __future__ import annotations

import pytest

from toban_admin_web.decide.flow_forms import (
    event_types,
    filter_of,
    hook_actions,
    pairs_of,
    pairs_text,
    webhook_actions,
)


def test_pairs_are_read_as_they_are_written() -> None:
    for pairs in ({}, {"a": "1"}, {"push": "push", "x": "a=b"}):
        assert pairs_of(pairs_text(pairs, alone=True), alone=True) == pairs
        assert pairs_of(pairs_text(pairs)) == pairs
    assert filter_of([], "", pairs_text({"team": "team", "x": "a, b"}))["labels"] == {"team": "team", "x": "a, b"}
    for text in ("a", "=b", "a=", "a=1\na=2"):
        with pytest.raises(ValueError, match=r".*"):
            pairs_of(text)


def test_a_filter_without_states_is_none() -> None:
    assert filter_of([], "", "")["states"] == ["NONE"]
    assert filter_of(["LATE", "FAILED", "odd"], "a\nb\na", "t=1") == {
        "states": ["FAILED", "LATE"],
        "jobs": ["a", "b"],
        "labels": {"t": "1"},
    }


def test_actions_are_those_of_the_state() -> None:
    assert webhook_actions(enabled=True, form="slack") == ["test", "redeliver", "disable", "remove"]
    assert webhook_actions(enabled=False, form="generic") == ["test", "redeliver", "enable", "secret", "remove"]
    assert hook_actions(enabled=True, secrets=2) == ["rotate", "drop", "disable", "remove"]
    assert hook_actions(enabled=False, secrets=1) == ["rotate", "enable", "remove"]
    assert event_types("", {"a": "x", "b": "x"}) == ["x"] and event_types("y", {"a": "x"}) == ["y"]
