"""The language of a page: an explicit choice, else the best match of Accept-Language."""

from __future__ import annotations

LANGUAGES = ("en", "ja", "zh-Hant")
DEFAULT = "en"
NAMES = {"en": "English", "ja": "日本語", "zh-Hant": "繁體中文"}
"""The name of each language, in that language."""
_BY_PREFIX = {"en": "en", "ja": "ja", "zh-hant": "zh-Hant", "zh-tw": "zh-Hant", "zh-hk": "zh-Hant", "zh-mo": "zh-Hant"}
MAX_PREFERENCES = 20


def requested(value: str) -> str:
    """The language that `?lang=` names; "" for an unsupported one."""
    return next((language for language in LANGUAGES if language.lower() == value.lower()), "")


def negotiate(accept_language: str) -> str:
    """The best language of an Accept-Language header; English when it names no supported one.

    Any other Chinese, such as zh-CN, is served in Traditional Chinese: the site has no other.
    """
    preferences: list[tuple[float, int, str]] = []
    for position, part in enumerate(accept_language.split(",")[:MAX_PREFERENCES]):
        tag, _, parameters = part.strip().partition(";")
        language = _supported(tag.strip().lower())
        weight = _weight(parameters)
        if language and weight > 0:
            preferences.append((-weight, position, language))
    return min(preferences)[2] if preferences else DEFAULT


def _supported(tag: str) -> str:
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
