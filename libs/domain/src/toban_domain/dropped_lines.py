"""Log levels as numbers, and the marker line that states how many lines were dropped because of a limit.

The marker has the sequence number of the last dropped line and is on the stream `system`, which jobs cannot write to.
Lines dropped by an executor have consecutive numbers up to the marker's. Lines dropped by a log-archiver are of one stream:
lines of other streams may have numbers between theirs.
"""

from __future__ import annotations

import re

LEVEL_NAMES = ("", "trace", "debug", "info", "warning", "error", "fatal")
"""Log levels by their number in a block of lines; 0 is none."""

DATABASE_LIMIT = "the database may hold of logs"
"""Text of a marker that a log-archiver writes when it drops lines because of log_budget_db_gb."""

_LEFT_OUT = re.compile(rb"\xe2\x80\xa6 ([0-9][0-9,]{0,25}) lines?, ")


def dropped_lines_text(lines: int, *, size: str, limit: str) -> str:
    """The text of the marker; `size` and `limit` are human-readable."""
    return f"… {lines:,} {'line' if lines == 1 else 'lines'}, {size} left out: more than {limit}"


def dropped_line_count(text: bytes) -> int:
    """Number of dropped lines that a line of the stream `system` states; 0 for any other line. For texts of guards and for lines that earlier
    releases stored without `dropped_lines`."""
    found = _LEFT_OUT.match(text)
    return int(found[1].replace(b",", b"")) if found else 0


def is_database_drop(text: bytes) -> bool:
    """Whether a marker was written by a log-archiver rather than by an executor."""
    return f" left out: more than {DATABASE_LIMIT}".encode() in text
