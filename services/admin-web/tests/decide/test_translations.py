"""Texts by language and key."""

from __future__ import annotations

from toban_admin_web.decide.translations import Translations, placeholders


def test_texts_fall_back_to_english_then_to_the_key() -> None:
    translations = Translations({"en": {"a": "{n} of {m}", "b": "bee"}, "ja": {"a": "{m} の {n}"}})
    assert translations.text("ja", "a", n=1, m="<x>") == "<x> の 1"
    assert translations.text("ja", "b") == "bee" and translations.text("ja", "c") == "c"
    assert translations.text("en", "a", n="{m}") == "{m} of {m}", (
        "values are inserted unchanged, unknown placeholders stay"
    )
    assert placeholders("{n} of {m}") == {"n", "m"}
