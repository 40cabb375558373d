"""How many numbers of an attempt stand for lines that a limit left out, from the executor's own lines that count them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class LeftOut:
    """Add the executor's own lines in order; `numbers` is how many numbers no line has, nor ever will."""

    def __init__(self) -> None:
        self._own: list[int] = []
        self.numbers = 0

    def add(self, lines: Iterable[tuple[int, int]]) -> None:
        """(number, lines that it says were left out, 0 = none): it stands for those numbers up to its own."""
        for seq, count in lines:
            if count:
                # Numbers in between that lines of the executor have are taken: the one that said where a gap begins, and its own.
                self.numbers += max(0, count - 1 - (len(self._own) - bisect_left(self._own, seq - count + 1)))
            self._own.append(seq)
