"""How many numbers of an attempt belong to lines that a limit dropped, from the lines of the stream SYSTEM that count them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from toban_domain.dropped_lines import dropped_line_count, is_database_drop
from toban_log_archiver.decide.line import SYSTEM, Line


class DropRecord(NamedTuple):
    """A line's number, and how many dropped lines it counts (0 = none). Its own number is one of theirs.

    `scattered`: they are a chunk of one stream, and other lines may have numbers between them.
    """

    seq: int
    lines: int
    scattered: bool = False


def drop_record(line: Line) -> DropRecord:
    """What a line counts; a line of a job counts nothing."""
    if line.stream != SYSTEM:
        return DropRecord(line.seq, 0)
    if line.dropped_lines > 0:
        return DropRecord(line.seq, line.dropped_lines, line.dropped_chunk)
    # Lines that were stored before they had these fields carry the number in their text alone.
    return DropRecord(line.seq, dropped_line_count(line.text), is_database_drop(line.text))


class DroppedNumbers:
    """Add the records of an attempt's SYSTEM lines in order; `numbers` is how many numbers no line has, nor ever will."""

    def __init__(self) -> None:
        self._own: list[int] = []
        self._scattered: dict[int, int] = {}
        self.numbers = 0

    @property
    def has_scattered(self) -> bool:
        """True when `stored` may change the number."""
        return bool(self._scattered)

    def add(self, records: Iterable[DropRecord]) -> None:
        """The next lines."""
        for seq, lines, scattered in records:
            if lines and scattered:
                self.numbers += lines - 1
                self._scattered[seq] = lines
            elif lines:
                # Lines of the executor have numbers in between: the one that announced the gap, and this one.
                self.numbers += max(0, lines - 1 - (len(self._own) - bisect_left(self._own, seq - lines + 1)))
            self._own.append(seq)

    def stored(self, seq_to: int) -> None:
        """A chunk of the job's lines that ends here is stored. One that was also dropped, when it was sent another time, counts as stored."""
        self.numbers -= self._scattered.pop(seq_to, 0)
