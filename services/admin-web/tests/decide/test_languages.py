"""The language of a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide.languages import LANGUAGES, negotiate, requested


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("fr, de;q=0.5", "en"),
        ("ja", "ja"),
        ("ja-JP, en;q=0.8", "ja"),
        ("en;q=0.2, zh-TW;q=0.9, ja;q=0.3", "zh-Hant"),
        ("zh-Hant-HK", "zh-Hant"),
        ("zh-CN", "zh-Hant"),
        ("fr, ja;q=0.1", "ja"),
        ("ja;q=0", "en"),
        ("ja;q=many", "en"),
        ("*", "en"),
        ("jazz", "en"),
    ],
)
def test_the_best_language(header: str, language: str) -> None:
    assert negotiate(header) == language


@given(st.text())
def test_any_header_gives_a_language(header: str) -> None:
    assert negotiate(header) in LANGUAGES
    assert requested(header) in (*LANGUAGES, "")
