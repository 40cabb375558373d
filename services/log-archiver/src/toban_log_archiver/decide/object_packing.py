"""How the chunks of a day are put into objects: many attempts an object, an attempt in one piece where it fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

TARGET_BYTES = 32 * 1024 * 1024
"""An object is closed before it becomes larger than this."""


class Sized(Protocol):
    """A chunk: the length of its frame."""

    @property
    def byte_length(self) -> int:
        """Compressed bytes, from 1."""


C = TypeVar("C", bound=Sized)


class Packer(Iterable[list[C]]):
    """Collects chunks in the order in which they come, and gives them out in packs of at most `target` bytes (or of one chunk)."""

    def __init__(self, target: int = TARGET_BYTES) -> None:
        self._target = target
        self._held: list[C] = []
        self._bytes = 0

    def add(self, chunks: Iterable[C]) -> Iterator[list[C]]:
        """The chunks of the next attempt; gives the packs that are full by that."""
        for chunk in chunks:
            if self._held and self._bytes + chunk.byte_length > self._target:
                yield self._take()
            self._held.append(chunk)
            self._bytes += chunk.byte_length

    def __iter__(self) -> Iterator[list[C]]:
        """What is left: one pack, or none."""
        if self._held:
            yield self._take()

    def _take(self) -> list[C]:
        full, self._held, self._bytes = self._held, [], 0
        return full
