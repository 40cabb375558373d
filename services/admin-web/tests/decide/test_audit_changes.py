"""What a row of the audit changed, as lines."""

from __future__ import annotations

from typing import Any

import pytest

from toban_admin_web.decide.audit_changes import MOST_LINES, MOST_TEXT, action_words, changed_lines


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (None, None, ""),
        ({}, {}, ""),
        ({"a": 1}, {"a": 1}, ""),
        (None, {"a": 1, "b": "x"}, "+a: 1 +b: x"),
        ({"a": 1}, None, "-a: 1"),
        ({"a": 1, "b": 2}, {"a": 3, "c": [1, "x"]}, '-a: 1 +a: 3 -b: 2 +c: [1, "x"]'),
        (
            {"spec": {"retry": {"n": 1}, "x": 1}},
            {"spec": {"retry": {"n": 2}, "x": 1}},
            "-spec.retry.n: 1 +spec.retry.n: 2",
        ),
        ({"a": 1}, {"a": {"b": 1}}, "-a: 1 +a.b: 1"),
        ("not JSON", None, '-"not JSON"'),
        ({"a": None}, {"a": "none"}, "-a: null +a: none"),
    ],
)
def test_lines_of_a_change(before: Any, after: Any, lines: str) -> None:
    assert " ".join(line.sign + line.text for line in changed_lines(before, after)) == lines


def test_what_is_shown_is_bounded() -> None:
    many = {f"key{n:03}": n for n in range(MOST_LINES + 5)}
    lines = changed_lines(None, many)
    assert len(lines) == MOST_LINES + 1 and lines[-1].sign == "…"
    [line] = changed_lines(None, {"a": "x" * 5000})
    assert len(line.text) < MOST_TEXT + 10
    [line] = changed_lines(None, {"a": "\u202eevil"})
    assert line.text == "a: \\u202eevil"


def test_what_differs_behind_the_shown_text_is_a_change() -> None:
    long = "x" * MOST_TEXT
    assert len(changed_lines({"a": long + "1"}, {"a": long + "2"})) == 2
    assert len(changed_lines({"a": "1"}, {"a": 1})) == 2 and len(changed_lines({"a": True}, {"a": 1})) == 2


def test_both_kinds_of_names_of_actions_are_words() -> None:
    names = ("job.disable", "add_rule", "declare_run_lost", "bootstrap link", "drain", "runs.cancel", "")
    words = ["disable job", "add rule", "declare run lost", "bootstrap link", "drain", "cancel runs", ""]
    assert [action_words(one) for one in names] == words
