"""Spans of time as people write them: 90s, 5m, 1h30m, 2d, 1w."""

from __future__ import annotations

import re

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+)([smhdw])")
_SPAN = re.compile(r"(?:\d+[smhdw])+")
# Characters; more are out of every range, or written to be a burden.
_LONGEST = 100


def span_seconds(text: str) -> float | None:
    """Whole seconds of a span; None when the text is none, infinite when it has too many digits to be meant."""
    if not _SPAN.fullmatch(text):
        return None
    if len(text) > _LONGEST:
        return float("inf")
    return sum(int(count) * UNITS[unit] for count, unit in _PART.findall(text))
