"""What executors write into logs and readers understand: levels as numbers, and the line that counts what a limit left out.

That line has the number of the last line that was left out, on the stream `system`, where no job writes. Those that an executor left out
have the numbers before it, each of them. Those that a log-archiver left out are of one stream: lines of another may have numbers between.
"""

from __future__ import annotations

import re

LEVEL_WORDS = ("", "trace", "debug", "info", "warning", "error", "fatal")
"""The levels of lines by the number that stands for each in a block of lines; 0 is none."""

DATABASE_LIMIT = "the database may hold of logs"
"""The limit for which a log-archiver leaves lines out, as the line that counts them has it."""

_LEFT_OUT = re.compile(rb"\xe2\x80\xa6 ([0-9][0-9,]{0,25}) lines?, ")


def left_out_words(lines: int, *, size: str, limit: str) -> str:
    """The text of the line; `size` and `limit` are for people."""
    return f"… {lines:,} {'line' if lines == 1 else 'lines'}, {size} left out: more than {limit}"


def left_out_lines(text: bytes) -> int:
    """How many lines a line of the stream `system` stands for; 0 for any other line."""
    found = _LEFT_OUT.match(text)
    return int(found[1].replace(b",", b"")) if found else 0


def is_of_database(text: bytes) -> bool:
    """Whether a line that stands for others is a log-archiver's, not an executor's."""
    return f" left out: more than {DATABASE_LIMIT}".encode() in text
