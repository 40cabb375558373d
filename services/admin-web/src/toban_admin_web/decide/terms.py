"""The name of a term: what people say in the place of its epoch."""

from __future__ import annotations

from toban_domain.epoch import Epoch


def term_name(epoch: int | str) -> str:
    """The number of the term in its generation, with the generation in front from the second on: 3, 2.1; "–" without a term."""
    try:
        parts = Epoch.unpack(int(epoch))
    except ValueError:
        return "–"
    if not parts.counter:
        return "–"
    return str(parts.counter) if parts.generation <= 1 else f"{parts.generation}.{parts.counter}"
