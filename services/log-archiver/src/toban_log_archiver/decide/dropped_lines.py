"""How many numbers of an attempt stand for lines that a limit left out, from the lines that count them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple


class Mark(NamedTuple):
    """A line of the stream system: its number, and how many lines it says were left out (itself counted, 0 = none).

    `scattered`: they are a chunk of one stream, and other lines may have numbers between them.
    """

    seq: int
    lines: int
    scattered: bool = False


class LeftOut:
    """Add the lines of the stream system in order; `numbers` is how many numbers no line has, nor ever will."""

    def __init__(self) -> None:
        self._own: list[int] = []
        self._scattered: dict[int, int] = {}
        self.numbers = 0

    @property
    def has_scattered(self) -> bool:
        """True when `stored` may change the number."""
        return bool(self._scattered)

    def add(self, marks: Iterable[Mark]) -> None:
        """The next lines."""
        for seq, lines, scattered in marks:
            if lines and scattered:
                self.numbers += lines - 1
                self._scattered[seq] = lines
            elif lines:
                # Numbers in between that lines of the executor have are taken: the one that said where a gap begins, and its own.
                self.numbers += max(0, lines - 1 - (len(self._own) - bisect_left(self._own, seq - lines + 1)))
            self._own.append(seq)

    def stored(self, seq_to: int) -> None:
        """A chunk of the job's lines that ends here is stored. One that was left out when it was sent another time counts as stored only."""
        self.numbers -= self._scattered.pop(seq_to, 0)
