"""Lines of output as they go from a guard to its executor."""

from typing import NamedTuple

CHUNK_BYTES = 256 * 1024
"""Bytes of text above which no more lines go into the same chunk."""

STDOUT, STDERR, SYSTEM = 1, 2, 3
"""Streams. The lines of SYSTEM are ours: they say what was left out, and why."""


class LogBlock(NamedTuple):
    """Consecutive lines of one stream of an attempt. `text` ends each line with a newline, except one `partial` line alone."""

    stream: int
    partial: bool
    at_ns: int
    seq_from: int
    lines: int
    text: bytes
