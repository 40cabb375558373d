"""The pattern that a reader searches for: literal text, or an expression whose cost is linear in what is searched (RE2)."""

from __future__ import annotations

from typing import Any

import re2

MAX_PATTERN_CHARS = 1000
MAX_PROGRAM = 500
"""Steps of a compiled expression; the worst a line costs is its length times this. Counted repetitions make them many."""
MAX_MATCH_BYTES = 64 * 1024
"""An expression is matched against so much of a line. Executors cut lines at 16 KiB, so this is for other senders only."""
_MEMORY_BYTES = 1024 * 1024


class PatternInvalid(ValueError):
    """A pattern cannot be searched for: the message has the reason."""


class Pattern:
    """What a line must contain. Safe to use from several threads."""

    def __init__(self, text: str, *, regex: bool) -> None:
        """Raises PatternInvalid."""
        if len(text) > MAX_PATTERN_CHARS:
            raise PatternInvalid(f"it has {len(text)} characters; at most {MAX_PATTERN_CHARS} are taken")
        if "\n" in text:
            raise PatternInvalid("it has a newline, and no line has one")
        self._literal = b"" if regex else text.encode()
        self._expression = _compiled(text) if regex else None

    def matches(self, line: bytes) -> bool:
        """Whether a line's text contains it."""
        if self._expression is None:
            return self._literal in line
        return self._expression.search(line[:MAX_MATCH_BYTES]) is not None

    @property
    def is_costly(self) -> bool:
        """True for an expression: match lines one by one, and check the time between them."""
        return self._expression is not None

    def may_match(self, packed: bytes) -> bool:
        """False when no line of a decompressed chunk can match, which is known before its lines are made."""
        return self._literal in packed


def _compiled(text: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY_BYTES
    try:
        expression = re2.compile(text, options)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        raise PatternInvalid(why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)) from None
    if expression.programsize > MAX_PROGRAM:
        raise PatternInvalid("it is too costly: use smaller counted repetitions")
    return expression
