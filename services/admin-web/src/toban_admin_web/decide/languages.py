"""Which language a page speaks: the one asked for, else the best of Accept-Language."""

from __future__ import annotations

LANGUAGES = ("en", "ja", "zh-Hant")
DEFAULT = "en"
NAMES = {"en": "English", "ja": "日本語", "zh-Hant": "繁體中文"}
"""Each language in its own words."""
_BY_PREFIX = {"en": "en", "ja": "ja", "zh-hant": "zh-Hant", "zh-tw": "zh-Hant", "zh-hk": "zh-Hant", "zh-mo": "zh-Hant"}
MAX_WISHES = 20


def asked(value: str) -> str:
    """The language that `?lang=` names; "" for none of ours."""
    return next((language for language in LANGUAGES if language.lower() == value.lower()), "")


def negotiated(accept_language: str) -> str:
    """The best language of an Accept-Language header; English when it names none of ours.

    Chinese without a script is taken as Traditional Chinese: it is the only Chinese there is.
    """
    wishes: list[tuple[float, int, str]] = []
    for position, part in enumerate(accept_language.split(",")[:MAX_WISHES]):
        tag, _, parameters = part.strip().partition(";")
        language = _ours(tag.strip().lower())
        weight = _weight(parameters)
        if language and weight > 0:
            wishes.append((-weight, position, language))
    return min(wishes)[2] if wishes else DEFAULT


def _ours(tag: str) -> str:
    for prefix, language in _BY_PREFIX.items():
        if tag == prefix or tag.startswith(f"{prefix}-"):
            return language
    return "zh-Hant" if tag == "zh" or tag.startswith("zh-") else ""


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
