"""The last N lines: from where to read, what to keep, and when an attempt is read to its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

MAX_TAIL_LINES = 10_000
"""More than this is a read from the start; a tail is held in memory until its end is known."""
MAX_TAIL_BYTES = 8 * 1024 * 1024


class HasText(Protocol):
    """A line."""

    @property
    def text(self) -> bytes:
        """Without the newline."""


L = TypeVar("L", bound=HasText)


class Last(Generic[L]):
    """The last lines of those that were added, within a number of lines and of bytes."""

    def __init__(self, *, lines: int, size: int = MAX_TAIL_BYTES) -> None:
        self._lines = lines
        self._size = size
        self._kept: deque[L] = deque()
        self._bytes = 0
        self._dropped = False

    def add(self, lines: Iterable[L]) -> None:
        """Lines that come after those before."""
        for line in lines:
            self._kept.append(line)
            self._bytes += len(line.text)
            while len(self._kept) > self._lines or self._bytes > self._size:
                self._bytes -= len(self._kept.popleft().text)
                self._dropped = True

    def add_before(self, earlier: Last[L]) -> None:
        """Lines that come before all that was added so far, as many as there is room for."""
        while earlier._kept and not self.full:
            line = earlier._kept.pop()
            if self._bytes + len(line.text) > self._size:
                self._dropped = True
                return
            self._kept.appendleft(line)
            self._bytes += len(line.text)
        self._dropped = self._dropped or earlier._dropped

    @property
    def full(self) -> bool:
        """True when no earlier line belongs to the tail."""
        return self._dropped or len(self._kept) >= self._lines

    @property
    def missing(self) -> int:
        """How many lines there is room for."""
        return self._lines - len(self._kept)

    @property
    def lines(self) -> list[L]:
        """In the order of the log."""
        return list(self._kept)


def is_end(*, last_seq: int | None, sealed_seconds: float | None, read_to: int, grace_seconds: float) -> bool:
    """True when a sealed attempt is read to its end.

    The seal is committed after the lines before it. Should lines be missing all the same (sent again through another archiver), they
    get `grace_seconds` from the seal on.
    """
    if last_seq is None or sealed_seconds is None:
        return False
    return read_to >= last_seq or sealed_seconds >= grace_seconds
