"""Values of /healthz checks as text."""

from typing import Any

import pytest

from toban_domain.finding import format_check_value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        (4.5, "4.5"),
        ("subleader", "subleader"),
        ({"rate": 0.0964, "errors": 140, "of": None}, "rate 0.0964, errors 140, of -"),
    ],
)
def test_a_check_value_as_text(value: Any, text: str) -> None:
    assert format_check_value(value) == text
