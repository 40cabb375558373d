"""Follows one attempt in order while its chunks arrive in any order: what comes after a gap is held back for a while."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from toban_log_archiver.decide.dropped_lines import DropRecord

GAP_SECONDS = 10.0
"""How long a follower waits for the lines of a gap before it skips them."""


class GapTracker:
    """The sequence number that comes next. Numbers count from 1 over all streams of an attempt; a line of SYSTEM counts a gap that stays."""

    def __init__(self, *, next_seq: int) -> None:
        self.next_seq = next_seq
        self.skipped = 0
        """Gaps whose lines did not come in time."""
        self._seen_at: float | None = None
        self._seen_seq = 0
        self._ahead: dict[int, int] = {}

    def expect(self, records: Iterable[DropRecord]) -> bool:
        """Records in order: each scattered one from `next_seq` on explains so many missing numbers before it. True when one is new."""
        known = len(self._ahead)
        for record in records:
            if record.scattered and record.seq >= self.next_seq:
                self._ahead.setdefault(record.seq, record.lines - 1)
        return len(self._ahead) > known

    def admits(self, record: DropRecord, *, wait: bool, now: float) -> bool:
        """True when the line of this record may be given out; it counts as given then.

        Without `wait` every gap is skipped at once. `now` are monotonic seconds; a gap's time runs from its first sight.
        """
        self.expect([record])
        missing = self._missing(record)
        is_gap = missing > 0 and missing > sum(self._ahead.values())
        if is_gap and wait and not self._expired(now):
            return False
        self.skipped += is_gap
        if self._ahead and (missing or record.scattered):
            self._use_up(missing, record.seq)
        self.next_seq = max(self.next_seq, record.seq + 1)
        self._seen_at = None
        return True

    def _missing(self, record: DropRecord) -> int:
        lines = 1 if record.scattered else max(1, record.lines)
        return max(0, record.seq - lines + 1 - self.next_seq)

    def _use_up(self, missing: int, given: int) -> None:
        """So many numbers before the line `given` are those of the first records to come: later ones may have others."""
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
        return now - self._seen_at >= GAP_SECONDS


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
    """Finds how far an attempt is stored without a gap, from the heads of its chunks alone; as far as chunks do not interleave.

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
