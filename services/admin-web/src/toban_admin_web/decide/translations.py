"""The texts of the pages in each language, by key."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toban_admin_web.decide.languages import DEFAULT

Message = tuple[str, dict[str, str]]
"""The key of a text, and the values of its placeholders."""
# {n} is a value; {n|run|runs} a word for one, and another for any other number.
_PLACEHOLDER = re.compile(r"\{([a-z_]+)(?:\|([^|{}]*)\|([^|{}]*))?\}")


class Translations:
    """Catalogues by language: key → text with `{placeholders}`."""

    def __init__(self, catalogues: Mapping[str, Mapping[str, str]]) -> None:
        self._catalogues = catalogues

    def text(self, language: str, key: str, **values: object) -> str:
        """The text in `language`, else in English, else the key. Nothing is escaped here: the template does that."""
        text = self.find(language, key)
        return key if text is None else _PLACEHOLDER.sub(lambda match: _filled(match, values), text)

    def find(self, language: str, key: str) -> str | None:
        """The text with its placeholders unfilled; None when no catalogue has it."""
        text = self._catalogues[language].get(key)
        return text if text is not None else self._catalogues[DEFAULT].get(key)


def placeholders(text: str) -> frozenset[str]:
    """The names of the placeholders in a text."""
    return frozenset(match[1] for match in _PLACEHOLDER.finditer(text))


def _filled(match: re.Match[str], values: Mapping[str, object]) -> str:
    name, one, other = match.groups()
    if name not in values:
        return match[0]
    value = str(values[name])
    return value if one is None else one if value == "1" else other
