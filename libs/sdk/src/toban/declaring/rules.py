"""What of a rule is wrong wherever it is applied: the type and bounds of its value, and its zone. The site reads the rest, such as fields of cron."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Mapping
from typing import Any

_DAY = 24 * 3600
_CLOCK = r"([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"
_TEXTS = {
    "cron": (re.compile(r"@\w+|\S+(\s+\S+){4,5}"), '"*/15 8-18 * * MON-FRI" or "@daily"'),
    "daily_at": (re.compile(_CLOCK), '"02:30"'),
    "weekly_at": (re.compile(rf"[a-zA-Z][a-zA-Z,\- ]* {_CLOCK}"), '"mon-fri 02:30"'),
}
_NUMBERS = {"hourly_at_minute": (0, 59), "every_n_minutes": (1, 366 * _DAY // 60), "interval_seconds": (1, 366 * _DAY)}


def problem(rules: Mapping[str, Any], timezone: Any) -> str:
    """What is wrong with the rules that are not None, and the remedy; empty when nothing is.

    >>> problem({"interval_seconds": 0}, "")
    'has interval_seconds=0; give a whole number from 1 to 31622400'
    >>> problem({"daily_at": "25:00"}, "")
    'has daily_at=\\'25:00\\'; write it as "02:30"'
    """
    given = {name: value for name, value in rules.items() if value is not None}
    if len(given) > 1:
        return f"has {' and '.join(given)}; give one of them"
    for name, value in given.items():
        if name in _TEXTS:
            form, example = _TEXTS[name]
            if not isinstance(value, str) or not form.fullmatch(value.strip()):
                return f"has {name}={value!r}; write it as {example}"
        else:
            first, last = _NUMBERS[name]
            if isinstance(value, bool) or not isinstance(value, int) or not first <= value <= last:
                return f"has {name}={value!r}; give a whole number from {first} to {last}"
    return _zone_problem(timezone)


def _zone_problem(timezone: Any) -> str:
    if timezone == "":
        return ""
    zones = zoneinfo.available_timezones()
    # Without a database of zones here only the site can read the name.
    if isinstance(timezone, str) and (not zones or timezone in zones):
        return ""
    near = difflib.get_close_matches(str(timezone), zones, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else 'give an IANA name such as "Europe/Berlin"'
    return f"has timezone={timezone!r}, which is no time zone; {remedy}"
