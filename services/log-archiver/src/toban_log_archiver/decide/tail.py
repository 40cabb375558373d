"""Where to begin reading so that the last N lines are certainly among what is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MAX_TAIL_LINES = 10_000
"""More than this is a read from the start; a tail is held in memory until its end is known."""
MAX_TAIL_BYTES = 8 * 1024 * 1024


def first_token(lines: Mapping[int, int], count: int) -> tuple[int, int]:
    """The token where the last `count` lines over several attempts begin, and how many of them are in it; (0, 0) without lines.

    `lines` has the number of lines by token.
    """
    left = count
    found = (0, 0)
    for token in sorted(lines, reverse=True):
        if left <= 0:
            break
        found = (token, min(left, lines[token]))
        left -= lines[token]
    return found


def start_seq(heads: Sequence[tuple[int, int]], count: int) -> int:
    """A sequence number with at least `count` lines at or after it (1 when there are fewer); `heads` are (seq_from, lines), latest first."""
    start, left = 1, count
    for seq_from, lines in heads:
        start = seq_from if left == count else min(start, seq_from)
        left -= lines
        if left <= 0:
            return start
    return 1


def is_end(*, last_seq: int | None, sealed_seconds: float | None, read_to: int, grace_seconds: float) -> bool:
    """True when a sealed attempt is read to its end.

    The seal is committed after the lines before it. Should lines be missing all the same (sent again through another archiver), they
    get `grace_seconds` from the seal on.
    """
    if last_seq is None or sealed_seconds is None:
        return False
    return read_to >= last_seq or sealed_seconds >= grace_seconds
