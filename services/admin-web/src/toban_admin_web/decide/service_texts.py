"""Translates the English sentences that services write. A key of the catalogue is a sentence with `{}` where a value stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

Catalogue = Mapping[str, Mapping[str, str]]
"""English sentence with `{}` for each value → language → the sentence with `{0}`, `{1}` … for the values."""

# Longer texts are not sentences of a service; so that the search of a page stays short.
MAX_LENGTH = 1000
_MAX_DEPTH = 3
# Lists of the services are shorter. A job can write one of hundreds of parts, each of which would be looked for.
_MAX_PARTS = 20
# As the services write a moment: 2026-12-01T08:00:00Z, 2026-12-01 08:00:00 UTC.
_MOMENT = re.compile(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z| UTC))\b", re.ASCII)


class ServiceTexts:
    """Finds the sentence that a text was made of. Of two that fit, the one with more words of its own counts."""

    def __init__(self, catalogue: Catalogue) -> None:
        keys = sorted(catalogue, key=lambda key: len(key.replace("{}", "")), reverse=True)
        self._sentences = [(key.split("{}"), catalogue[key]) for key in keys]
        self.find = lru_cache(maxsize=4096)(self._find)
        self._is_known = lru_cache(maxsize=4096)(self._fits_one)

    def parts(self, language: str, text: str) -> Sequence[str | datetime]:
        """`text` in `language`, with its moments apart; the text itself where no service is known to write it, since a time in it is of a job."""
        found = self.find(language, text)
        if not _MOMENT.search(text) or (found is None and not self._is_known(text)):
            return (found or text,)
        pieces = _MOMENT.split(found or text)
        return [_moment(piece) if number % 2 else piece for number, piece in enumerate(pieces) if piece]

    def _fits_one(self, text: str) -> bool:
        return len(text) <= MAX_LENGTH and any(_values(pieces, text) is not None for pieces, _ in self._sentences)

    def _find(self, language: str, text: str, depth: int = 0) -> str | None:
        """`text` in `language`; None for a text that no service is known to write."""
        if len(text) > MAX_LENGTH or depth > _MAX_DEPTH:
            return None
        for pieces, translations in self._sentences:
            values = _values(pieces, text)
            if values is not None and (sentence := translations.get(language)) is not None:
                return sentence.format(*(self._inner(language, value, depth + 1) for value in values))
        return None

    def _inner(self, language: str, value: str, depth: int) -> str:
        """A value is a sentence, or a list of some, or stays. A single word is a name: a job may be called `runs`."""
        if " " not in value:
            return value
        found = self._find(language, value, depth)
        parts = value.split(", ")
        if found is not None or not 1 < len(parts) <= _MAX_PARTS:
            return found or value
        return ", ".join(self._inner(language, part, depth + 1) for part in parts)


def _moment(text: str) -> str | datetime:
    try:
        return datetime.fromisoformat(text.removesuffix(" UTC").removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        return text


def _values(pieces: list[str], text: str) -> list[str] | None:
    """What stands in `text` between the fixed pieces, each found where it comes first; None when they are not all there.

    Without backtracking: the texts of jobs and people are among those that are tried.
    """
    if len(pieces) == 1:
        return [] if text == pieces[0] else None
    first, last = pieces[0], pieces[-1]
    end = len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last):
        return None
    values, position = [], len(first)
    for piece in pieces[1:-1]:
        at = text.find(piece, position, end)
        if at < 0:
            return None
        values.append(text[position:at])
        position = at + len(piece)
    return [*values, text[position:end]] if position <= end else None
