"""Follows one attempt in order while its chunks arrive in any order: what comes after a hole is held back for a while."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from toban_log_archiver.decide.dropped_lines import Mark

HOLE_SECONDS = 10.0
"""How long a follower waits for the lines of a hole before it passes over it."""


class Holes:
    """The sequence number that comes next. Numbers count from 1 over all streams of an attempt; a gap that stays is counted by a line."""

    def __init__(self, *, next_seq: int) -> None:
        self.next_seq = next_seq
        self.passed_over = 0
        """Holes that nobody filled."""
        self._seen_at: float | None = None
        self._seen_seq = 0
        self._ahead: dict[int, int] = {}

    def expect(self, marks: Iterable[Mark]) -> bool:
        """Marks from `next_seq` on, in order: numbers before the scattered ones are nowhere, so many. True when one is new."""
        known = len(self._ahead)
        for mark in marks:
            if mark.scattered and mark.seq >= self.next_seq:
                self._ahead.setdefault(mark.seq, mark.lines - 1)
        return len(self._ahead) > known

    def passes(self, mark: Mark, *, patient: bool, now: float) -> bool:
        """True when the line, which may stand for others, may be given out; it is taken as given then.

        Without patience nothing is waited for. `now` are monotonic seconds; a hole's time runs from its first sight.
        """
        self.expect([mark])
        missing = self._missing(mark)
        hole = missing > 0 and missing > sum(self._ahead.values())
        if hole and patient and not self._expired(now):
            return False
        self.passed_over += hole
        if self._ahead and (missing or mark.scattered):
            self._use_up(missing, mark.seq)
        self.next_seq = max(self.next_seq, mark.seq + 1)
        self._seen_at = None
        return True

    def _missing(self, mark: Mark) -> int:
        lines = 1 if mark.scattered else max(1, mark.lines)
        return max(0, mark.seq - lines + 1 - self.next_seq)

    def _use_up(self, missing: int, given: int) -> None:
        """So many numbers before the line `given` are those of the first marks to come: later ones may have others."""
        for seq in sorted(self._ahead):
            used = min(missing, self._ahead[seq])
            self._ahead[seq] -= used
            missing -= used
            if seq <= given:
                del self._ahead[seq]
            elif not missing:
                return

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
