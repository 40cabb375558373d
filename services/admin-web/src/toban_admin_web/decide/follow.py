"""Where a reader of a live log stands, what is read next, and when the log is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MAX_TOKEN = (1 << 63) - 1
MAX_CURSOR = 50
# How long the last lines of a run that is over may take to arrive, seconds; the same when no line is known of.
SEAL_SECONDS = 10.0
QUIET_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last line that the reader has: (0, 0) is the very start. Written `token:seq`."""

    token: int = 0
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.token}:{self.seq}"


def parse_cursor(text: str) -> Cursor:
    """A cursor from a query or a Last-Event-ID; the start for what is none."""
    token, colon, seq = text.strip().partition(":")
    if len(text) > MAX_CURSOR or not (
        colon and token.isascii() and token.isdigit() and seq.isascii() and seq.isdigit()
    ):
        return Cursor()
    # There is no line after the greatest number.
    if int(token) > MAX_TOKEN or int(seq) >= MAX_TOKEN:
        return Cursor()
    return Cursor(int(token), int(seq))


class Next(Enum):
    """What a reader does after it has read what there is."""

    READ = "read"
    WAIT = "wait"
    END = "end"
    INCOMPLETE = "incomplete"
    """The run is over, but its output never became complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known after one reading. `sealed` says that the log-archiver called the attempt of `cursor` (or the last one) complete.

    `over_seconds` is how long ago the run was first seen in a terminal state, None while it goes on.
    """

    cursor: Cursor
    sealed: bool
    tokens: Sequence[int]
    over_seconds: float | None
    has_output: bool


def after_reading(seen: Seen) -> tuple[Next, Cursor]:
    """What comes next, and from where."""
    later = sorted(token for token in seen.tokens if token > seen.cursor.token)
    if seen.sealed and later and seen.cursor.token:
        return Next.READ, Cursor(later[0], 0)
    if seen.over_seconds is None:
        return (Next.WAIT if seen.sealed else Next.READ), seen.cursor
    if seen.sealed or not seen.tokens:
        return Next.END, seen.cursor
    if not seen.has_output and seen.over_seconds >= QUIET_SECONDS:
        return Next.END, seen.cursor
    if seen.over_seconds >= SEAL_SECONDS:
        return Next.INCOMPLETE, seen.cursor
    return Next.READ, seen.cursor
