"""Lines of the output of runs, as log-archivers return them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of output. `stream` is stdout, stderr or system (written by the executor). `partial`: the stream's next line continues it.

    `level` is that of a structured line; "" for others. A line of `system` may count `dropped_lines`. Of joined parts `first_seq` is the number of
    the first; 0 for a line of one part.
    """

    token: int
    seq: int
    at: datetime | None
    stream: str
    text: str
    partial: bool
    level: str = ""
    dropped_lines: int = 0
    first_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Consecutive lines of one attempt; `at_end`: all attempts known so far are complete."""

    token: int
    lines: tuple[LogLine, ...]
    at_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """How far a search is: up to this line of this run; the whole run when `token` is 0."""

    run: int
    token: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLines:
    """A part of a search: (run, line) of each hit. `cut`: there may be more behind `place`."""

    lines: Sequence[tuple[int, LogLine]]
    place: LogPlace | None
    cut: bool
    runs: int
    bytes: int
    expired_attempts: int
