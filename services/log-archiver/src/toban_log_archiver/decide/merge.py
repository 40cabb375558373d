"""Puts the lines of several streams of one attempt into one order, a page of chunks at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class HasSeq(Protocol):
    """A line: its sequence number counts over all streams of the attempt."""

    @property
    def seq(self) -> int:
        """From 1."""


L = TypeVar("L", bound=HasSeq)
END = (1 << 63) - 1
"""A horizon beyond every line."""


class Merge(Generic[L]):
    """Lines in order of their sequence numbers, each once.

    Within a stream chunks come in order; of each stream only one chunk is decoded at a time, so memory does not grow with the log.
    A chunk that overlaps with lines already given (sent again in other pieces) adds only what is new.
    """

    def __init__(self, *, decode: Callable[[bytes], Iterable[L]], from_seq: int = 1) -> None:
        self._decode = decode
        self._from_seq = from_seq
        self._streams: dict[int, _Stream[L]] = {}
        self.last_seq = 0
        """The largest sequence number given so far."""

    def add(self, stream: int, data: bytes) -> None:
        """The next chunk of a stream, still compressed."""
        if stream not in self._streams:
            self._streams[stream] = _Stream(self._decode, self._from_seq - 1)
        self._streams[stream].chunks.append(data)

    def ready(self, horizon: int) -> Iterator[L]:
        """The lines up to `horizon`: no chunk that will be added later begins before it."""
        while True:
            best: _Stream[L] | None = None
            best_line: L | None = None
            for stream in self._streams.values():
                line = stream.head()
                if line is not None and (best_line is None or line.seq < best_line.seq):
                    best, best_line = stream, line
            if best is None or best_line is None or best_line.seq > horizon:
                return
            seq = best_line.seq
            best.advance(seq)
            self.last_seq = max(self.last_seq, seq)
            yield best_line


class _Stream(Generic[L]):
    def __init__(self, decode: Callable[[bytes], Iterable[L]], after: int) -> None:
        self.chunks: deque[bytes] = deque()
        self._decode = decode
        self._after = after
        self._lines: Iterator[L] = iter(())
        self._head: L | None = None

    def head(self) -> L | None:
        """The next line, decoding the next chunk when the current one is used up."""
        while self._head is None:
            for line in self._lines:
                if line.seq > self._after:
                    self._head = line
                    return line
            if not self.chunks:
                self._lines = iter(())
                return None
            self._lines = iter(self._decode(self.chunks.popleft()))
        return self._head

    def advance(self, seq: int) -> None:
        """The next line, of this number, was taken."""
        self._after, self._head = seq, None
