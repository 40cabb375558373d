"""The position of a live log's reader, what it reads next, and when the log is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MAX_TOKEN = (1 << 63) - 1
MAX_CURSOR = 50
# The last lines of an ended run may arrive this much later, seconds; the second one applies while no line is known.
SEAL_WAIT_SECONDS = 10.0
NO_OUTPUT_WAIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last line that the reader has: (0, 0) is the start of the log. Written `token:seq`."""

    token: int = 0
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.token}:{self.seq}"


def parse_cursor(text: str) -> Cursor:
    """A cursor from a query or a Last-Event-ID; the start of the log for malformed text."""
    token, colon, seq = text.strip().partition(":")
    if len(text) > MAX_CURSOR or not (
        colon and token.isascii() and token.isdigit() and seq.isascii() and seq.isdigit()
    ):
        return Cursor()
    # No line follows the greatest number.
    if int(token) > MAX_TOKEN or int(seq) >= MAX_TOKEN:
        return Cursor()
    return Cursor(int(token), int(seq))


class NextStep(Enum):
    """What a reader does after one read."""

    READ = "read"
    WAIT = "wait"
    END = "end"
    INCOMPLETE = "incomplete"
    """The run has ended, but its output never became complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """The state after one read. `sealed`: the log-archiver reported the attempt of `cursor`, or the last one, as complete.

    `ended_for` is the time since the run was first seen in a terminal state, in seconds; None for a live run.
    """

    cursor: Cursor
    sealed: bool
    tokens: Sequence[int]
    ended_for: float | None
    has_output: bool


def next_step(state: ReadState) -> tuple[NextStep, Cursor]:
    """What to do next, and from which cursor."""
    later = sorted(token for token in state.tokens if token > state.cursor.token)
    if state.sealed and later and state.cursor.token:
        return NextStep.READ, Cursor(later[0], 0)
    if state.ended_for is None:
        return (NextStep.WAIT if state.sealed else NextStep.READ), state.cursor
    if state.sealed or not state.tokens:
        return NextStep.END, state.cursor
    if not state.has_output and state.ended_for >= NO_OUTPUT_WAIT_SECONDS:
        return NextStep.END, state.cursor
    if state.ended_for >= SEAL_WAIT_SECONDS:
        return NextStep.INCOMPLETE, state.cursor
    return NextStep.READ, state.cursor
