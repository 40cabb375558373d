"""One line of a job's output, as every reader handles it."""

from __future__ import annotations

from typing import NamedTuple

STDOUT, STDERR, SYSTEM = 1, 2, 3
"""Streams; SYSTEM holds the lines that executors and log-archivers add."""
STREAMS = frozenset({STDOUT, STDERR, SYSTEM})
JOB_STREAMS = (STDOUT, STDERR)


class Line(NamedTuple):
    """`seq` counts over all streams of an attempt, from 1. `text` has no newline; a `partial` line had none. `level` is empty when unknown.

    A line of SYSTEM counts `dropped_lines`, and has the number of the last of them. With `dropped_chunk` they were a chunk of one stream:
    lines of another stream may have numbers between theirs.
    """

    seq: int
    at_unix_nanos: int
    stream: int
    text: bytes
    partial: bool = False
    level: str = ""
    dropped_lines: int = 0
    dropped_chunk: bool = False
