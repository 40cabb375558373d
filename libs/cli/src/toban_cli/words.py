"""Numbers and keys in words; loads nothing, so that every command may use it."""

from __future__ import annotations

import re

# Keys that this command made up because nobody gave one.
_OWN_KEY = re.compile(r"cli-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def count(number: int, what: str) -> str:
    """1 run, 2 runs."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def plain_number(number: float) -> str:
    """Whole numbers with all their digits, others as they are written."""
    return str(int(number)) if abs(number) < 1e18 and number == int(number) else f"{number:g}"


def given_key(key: str) -> str:
    """The key of a run or an event, "" when it is one that this command made up."""
    return "" if _OWN_KEY.fullmatch(key) else key
