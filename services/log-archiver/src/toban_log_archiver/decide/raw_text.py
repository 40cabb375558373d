"""Bytes of an attempt's text: the lines of its streams one after the other, as the job wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from toban_log_archiver.decide.line import Line


class HasRange(Protocol):
    """A chunk without its lines."""

    @property
    def stream(self) -> int:
        """1 stdout, 2 stderr."""

    @property
    def seq_from(self) -> int:
        """Its first line."""

    @property
    def seq_to(self) -> int:
        """Its last line."""

    @property
    def raw_bytes(self) -> int:
        """Text and newlines of its lines."""


class Skip:
    """Finds the last place before a byte where chunks do not interleave, from their heads alone.

    Heads come in order of (seq_from, stream), all of the wanted streams.
    """

    def __init__(self, *, byte: int) -> None:
        self._byte = byte
        self._bytes = 0
        self._ends: dict[int, int] = {}
        self.seq = 1
        self.offset = 0
        """The first byte of the line `seq`, or of the first one after it."""
        self.done = False
        """True when later heads change nothing."""

    def add(self, heads: Iterable[HasRange]) -> None:
        """The next chunks."""
        for head in heads:
            if self.done:
                return
            end = max(self._ends.values(), default=0)
            if end < head.seq_from:
                self.seq, self.offset = head.seq_from, self._bytes
            # Lines that were stored twice in other pieces would be counted twice.
            twice = head.seq_from <= self._ends.get(head.stream, 0)
            self._ends[head.stream] = head.seq_to
            self._bytes += head.raw_bytes
            self.done = twice or self._bytes > self._byte


class Clip:
    """The part [first, last) of a text that comes piece by piece from `offset` on; last None is no end."""

    def __init__(self, *, offset: int, first: int, last: int | None) -> None:
        self._at = offset
        self._first = first
        self._last = last

    @property
    def is_over(self) -> bool:
        """True when nothing more can come."""
        return self._last is not None and self._at >= self._last

    def take(self, lines: Iterable[Line]) -> tuple[int, bytes]:
        """The wanted bytes of the next lines, and where in the text they begin."""
        text = b"".join(line.text if line.partial else line.text + b"\n" for line in lines)
        begin = self._at
        self._at += len(text)
        low = max(self._first, begin)
        high = self._at if self._last is None else min(self._at, self._last)
        return low, text[low - begin : high - begin] if low < high else b""
