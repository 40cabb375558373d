"""Follows one attempt in order while its chunks arrive in any order: what comes after a hole is held back for a while."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

HOLE_SECONDS = 10.0
"""How long a follower waits for the lines of a hole before it passes over it."""


class Holes:
    """The sequence number that comes next. Numbers count from 1 over all streams of an attempt; a gap that stays is counted by a line."""

    def __init__(self, *, next_seq: int) -> None:
        self.next_seq = next_seq
        self._seen_at: float | None = None
        self._seen_seq = 0

    def is_hole(self, seq: int, *, left_out: int = 0) -> bool:
        """True when lines before `seq` are missing; `left_out` is the number of lines that it stands for, itself counted."""
        return seq - max(1, left_out) + 1 > self.next_seq

    def passes(self, seq: int, *, left_out: int = 0, patient: bool, now: float) -> bool:
        """True when the line `seq` may be given out; it is taken as given then.

        Without patience nothing is waited for. `now` are monotonic seconds; a hole's time runs from its first sight.
        """
        if self.is_hole(seq, left_out=left_out) and patient and not self._expired(now):
            return False
        self.next_seq = seq + 1
        self._seen_at = None
        return True

    def _expired(self, now: float) -> bool:
        if self._seen_at is None or self._seen_seq != self.next_seq:
            self._seen_at, self._seen_seq = now, self.next_seq
        return now - self._seen_at >= HOLE_SECONDS


class HasRange(Protocol):
    """A chunk without its lines."""

    @property
    def seq_from(self) -> int:
        """Its first line."""

    @property
    def seq_to(self) -> int:
        """Its last line."""

    @property
    def line_count(self) -> int:
        """How many lines it has."""


class Prefix:
    """Finds how far an attempt is stored without a hole, from the heads of its chunks alone; as far as chunks do not interleave.

    Heads come in order of (seq_from, stream), of all streams.
    """

    def __init__(self, *, before: int) -> None:
        self._before = before
        self._end = 0
        self._lines = 0
        self.next_seq = 1
        """The line after the prefix; at most `before`."""
        self.done = False
        """True when later heads change nothing."""

    def add(self, heads: Iterable[HasRange]) -> None:
        """The next chunks."""
        for head in heads:
            self.done = self.done or head.seq_from >= self._before
            if self.done:
                return
            if head.seq_from == self._end + 1:
                self._cut()
            elif head.seq_from > self._end:
                self.done = True
                return
            self._end = max(self._end, head.seq_to)
            self._lines += head.line_count

    def close(self) -> int:
        """No chunk comes any more: the line after the prefix."""
        if self._end < self._before:
            self._cut()
        return self.next_seq

    def _cut(self) -> None:
        if self._lines == self._end:
            self.next_seq = self._end + 1
