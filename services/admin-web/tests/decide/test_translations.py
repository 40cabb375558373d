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


def test_a_word_for_one_and_another_for_more() -> None:
    translations = Translations({"en": {"a": "{n} {n|run|runs} of {m}", "b": "{n|it is|they are}"}})
    assert [translations.text("en", "a", n=n, m=1) for n in (1, "1", 0, 2, "1,000")] == [
        *("1 run of 1", "1 run of 1", "0 runs of 1", "2 runs of 1", "1,000 runs of 1"),
    ]
    assert translations.text("en", "a", m=1) == "{n} {n|run|runs} of 1" and translations.text("en", "b", n=1) == "it is"
    assert placeholders("{n} {n|run|runs} of {m}") == {"n", "m"}
