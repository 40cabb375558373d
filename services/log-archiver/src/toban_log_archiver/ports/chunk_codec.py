"""The encoding of chunks: a zstd frame of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from toban_log_archiver.decide.chunk_validation import Claim, Measured
from toban_log_archiver.decide.line import Line
from toban_log_archiver.decide.line_filter import Selection


class ChunkCodec(Protocol):
    """Frames come from other machines: every method is safe for any bytes. Methods may be called from several threads."""

    def lines(self, data: bytes) -> Iterable[Line]:
        """The lines in a frame, decoded one at a time. Raises ChunkInvalid for what is no frame, is too large, or holds no lines."""
        ...

    def selected(
        self, data: bytes, selection: Selection, on_opened: Callable[[int], None] = lambda _size: None
    ) -> Iterable[Line]:
        """Those lines of a frame that pass the selection; `on_opened` gets the decompressed size. Raises as `lines`."""
        ...

    def opened_size(self, data: bytes) -> int:
        """The decompressed size that a frame claims; the largest that is accepted when it claims none."""
        ...

    def check(self, claim: Claim, data: bytes) -> Measured:
        """What the lines of a frame measure. Raises ChunkInvalid unless they are exactly those of the claim."""
        ...

    def encode(self, lines: Sequence[Line]) -> bytes:
        """A frame of these lines."""
        ...
