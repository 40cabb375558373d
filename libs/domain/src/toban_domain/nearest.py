"""The "did you mean" of error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is closest to a mistyped one, "" when none is close."""
    lowered = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), list(lowered), n=1, cutoff=0.6)
    return lowered[close[0]] if close else ""


def suggestion(word: str, known: Iterable[str], otherwise: str) -> str:
    """The remedy for a mistyped word: the nearest known one that is another, or `otherwise` when none is close."""
    near = nearest(word, known)
    return f"did you mean {near!r}?" if near and near != word else otherwise
