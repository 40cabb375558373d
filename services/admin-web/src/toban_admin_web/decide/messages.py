"""The words of the pages in each language, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toban_admin_web.decide.languages import DEFAULT

_PLACE = re.compile(r"\{([a-z_]+)\}")


class Messages:
    """Catalogues by language: name → text, with `{place}` for values."""

    def __init__(self, catalogues: Mapping[str, Mapping[str, str]]) -> None:
        self._catalogues = catalogues

    def say(self, language: str, name: str, **values: object) -> str:
        """The text in `language`, else in English, else the name itself. Nothing is escaped here: the template does that."""
        text = self.find(language, name)
        return name if text is None else _PLACE.sub(lambda place: str(values.get(place[1], place[0])), text)

    def find(self, language: str, name: str) -> str | None:
        """The text with its places open; None when no catalogue has it."""
        text = self._catalogues[language].get(name)
        return text if text is not None else self._catalogues[DEFAULT].get(name)


def places(text: str) -> frozenset[str]:
    """The names of the places in a text."""
    return frozenset(_PLACE.findall(text))
