"""Checks of /healthz for people."""

from typing import Any

import pytest

from toban_domain.health import seen_words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        (4.5, "4.5"),
        ("subleader", "subleader"),
        ({"rate": 0.0964, "errors": 140, "of": None}, "rate 0.0964, errors 140, of -"),
    ],
)
def test_what_a_check_saw(value: Any, words: str) -> None:
    assert seen_words(value) == words
