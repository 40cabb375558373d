"""Spans of time as systemd writes them: 90, 5min 20s, 1h30m, infinity."""

from __future__ import annotations

import math
import re

_UNITS = {
    **dict.fromkeys(("usec", "us", "µs", "μs"), 1e-6),
    **dict.fromkeys(("msec", "ms"), 1e-3),
    **dict.fromkeys(("", "seconds", "second", "sec", "s"), 1),
    **dict.fromkeys(("minutes", "minute", "min", "m"), 60),
    **dict.fromkeys(("hours", "hour", "hr", "h"), 3600),
    **dict.fromkeys(("days", "day", "d"), 86_400),
    **dict.fromkeys(("weeks", "week", "w"), 604_800),
    **dict.fromkeys(("months", "month", "M"), 2_629_800),
    **dict.fromkeys(("years", "year", "y"), 31_557_600),
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµμ]*)\s*")


def seconds(text: str) -> float | None:
    """Seconds of a span, infinite for `infinity`; None when the text is no span."""
    if text.strip() == "infinity":
        return math.inf
    total, place = 0.0, 0
    while place < len(text):
        found = _PART.match(text, place)
        if found is None or found[2] not in _UNITS:
            return None
        total, place = total + float(found[1]) * _UNITS[found[2]], found.end()
    return total if text.strip() else None
