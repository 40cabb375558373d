"""Output of attempts in memory: gathered lines, and the chunks, seals and tickets that the journal may not have yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from toban_domain.log_block import CHUNK_BYTES, STDERR, STDOUT, SYSTEM, LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import Report
from toban_executor.ports.journal import JournalBatch
from toban_executor.ports.logs import Chunk, Seal

Pack = Callable[[Sequence[LogBlock]], bytes]


@dataclass(slots=True)
class _Gathering:
    """Lines of one attempt and stream that are not in a chunk yet."""

    blocks: list[LogBlock] = field(default_factory=list)
    size: int = 0


class ChunkBuffer:
    """`pack` makes the bytes of a chunk. `size` is the text in memory, in bytes."""

    def __init__(self, *, pack: Pack) -> None:
        self.size = 0
        self._pack = pack
        self._gathering: dict[tuple[AttemptKey, int], _Gathering] = {}
        self._tickets: dict[AttemptKey, bytes] = {}
        # Made but perhaps not on disk yet: kept until the journal has them.
        self._chunks: list[Chunk] = []
        self._seals: list[Seal] = []
        self._first_tickets: dict[AttemptKey, bytes] = {}

    def open(self, key: AttemptKey, ticket: bytes) -> None:
        """An attempt begins; its ticket is used when it writes something."""
        self._tickets[key] = ticket

    def add(self, key: AttemptKey, block: LogBlock) -> None:
        """Lines of an attempt, in order."""
        place = key, block.stream
        gathering = self._gathering.setdefault(place, _Gathering())
        gathering.blocks.append(block)
        gathering.size += len(block.text)
        self.size += len(block.text)
        if gathering.size >= CHUNK_BYTES:
            self._make_chunk(place)

    def close(self, key: AttemptKey, last_seq: int) -> None:
        """The attempt ended; one that wrote nothing (`last_seq` 0) leaves nothing."""
        if last_seq:
            for stream in (STDOUT, STDERR, SYSTEM):
                self._make_chunk((key, stream))
            self._seals.append(Seal(key, last_seq))
        self._tickets.pop(key, None)

    def has_seal(self, key: AttemptKey) -> bool:
        """True while the end of this attempt is not on disk."""
        return any(seal.key == key for seal in self._seals)

    @property
    def pending(self) -> bool:
        """True while something is not in the journal yet."""
        return bool(self._gathering or self._chunks or self._seals)

    @property
    def urgent(self) -> bool:
        """True while a full chunk or the end of an attempt is not in the journal yet."""
        return bool(self._chunks or self._seals)

    def batch(self, *, reports: Sequence[Report], ack_offsets: Mapping[str, int]) -> JournalBatch:
        """All that there is, to be stored; it stays here until `drop`."""
        for place in list(self._gathering):
            self._make_chunk(place)
        return JournalBatch(
            chunks=self._chunks[:],
            seals=self._seals[:],
            tickets=dict(self._first_tickets),
            reports=reports,
            ack_offsets=ack_offsets,
        )

    def drop(self, batch: JournalBatch, size: int) -> None:
        """The batch is on disk; `size` was the text in memory when it was made."""
        del self._chunks[: len(batch.chunks)]
        del self._seals[: len(batch.seals)]
        for key in batch.tickets:
            self._first_tickets.pop(key, None)
        self.size -= size

    def _make_chunk(self, place: tuple[AttemptKey, int]) -> None:
        gathering = self._gathering.pop(place, None)
        if gathering is None:
            return
        key, _stream = place
        if key in self._tickets:
            self._first_tickets[key] = self._tickets.pop(key)
        self._chunks.append(Chunk.of(key, gathering.blocks, self._pack(gathering.blocks)))
