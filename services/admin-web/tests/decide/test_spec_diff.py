"""What changed between two definitions."""

from toban_admin_web.decide.spec_diff import MOST_LINES, spec_diff


def test_only_what_is_near_a_change_is_shown() -> None:
    before = {f"key{n:02}": n for n in range(40)}
    after = {**before, "key20": 0, "more": 1}
    lines = spec_diff(before, after) or []
    assert [(one.sign, one.text.strip()) for one in lines if one.sign in "+-" and one.sign] == [
        ("-", '"key20": 20,'),
        ("+", '"key20": 0,'),
        ("-", '"key39": 39'),
        ("+", '"key39": 39,'),
        ("+", '"more": 1'),
    ]
    assert [one.sign for one in lines].count("…") == 2, "before the first group and between the two"
    assert len(lines) < 25


def test_the_same_definition_has_no_lines() -> None:
    assert spec_diff({"a": 1, "b": 2}, {"a": 1, "b": 2}) == []


def test_very_long_definitions_are_not_compared() -> None:
    assert spec_diff({}, {str(n): n for n in range(MOST_LINES)}) is None
