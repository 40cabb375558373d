"""Log lines on their way from the journal to a log-archiver."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey


class Chunk(NamedTuple):
    """Log lines of one attempt and stream, compressed. `id` is the journal's (0 before it is there)."""

    id: int
    key: AttemptKey
    stream: int
    seq_from: int
    seq_to: int
    lines: int
    raw_bytes: int
    first_ns: int
    last_ns: int
    data: bytes

    @classmethod
    def of(cls, key: AttemptKey, blocks: Sequence[LogBlock], data: bytes) -> Self:
        """These lines of one stream, in order, which are `data`."""
        first, last = blocks[0], blocks[-1]
        return cls(
            id=0,
            key=key,
            stream=first.stream,
            seq_from=first.seq_from,
            seq_to=last.seq_from + last.lines - 1,
            lines=sum(block.lines for block in blocks),
            raw_bytes=sum(len(block.text) for block in blocks),
            first_ns=first.at_ns,
            last_ns=last.at_ns,
            data=data,
        )


class Seal(NamedTuple):
    """The last line number of an attempt."""

    key: AttemptKey
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkBatch:
    """The next things to ship, and the tickets of the attempts in it."""

    chunks: Sequence[Chunk]
    seals: Sequence[Seal]
    tickets: Mapping[AttemptKey, bytes]


class Archivers(Protocol):
    """The log-archivers; `open` raises TobanError when none is known."""

    def open(self) -> "AbstractAsyncContextManager[LogStream]":
        """A stream to one of them, another one after a failure."""
        ...

    def try_another(self) -> None:
        """The next stream goes to another one."""
        ...


class LogStream(Protocol):
    """One open stream to a log-archiver."""

    async def append(self, batch: ChunkBatch) -> "Shipped":
        """Send the batch and wait until it is committed. Raises TobanError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What an archiver refused of a committed batch: (attempt, first line, code). `lacks_ticket` = send again with tickets."""

    refused: Sequence[tuple[AttemptKey, int, str]] = ()
    lacks_ticket: bool = False
