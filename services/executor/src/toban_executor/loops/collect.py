"""Gathers the output of jobs into chunks and puts them into the journal, from where they are shipped.

Bounded: when more waits than the disk takes, or the journal holds more than its share, the guards read no more output, and jobs
wait in their writes. What was read before that is still taken, and so are the starts and ends of attempts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from toban_domain.outcome import AttemptKey
from toban_executor.decide.blocks import STDERR, STDOUT, SYSTEM
from toban_executor.decide.messages import AttemptEnd
from toban_executor.ports import Block, Chunk, Journal, Seal
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

CHUNK_BYTES = 256 * 1024
GATHER_SECONDS = 0.05
"""From one write to the next at least, while output keeps coming."""
FIRST_SECONDS = 0.005
"""After a quiet time: who follows a run sees a line soon, and what is printed together is written together."""
MEMORY_BYTES = 8 << 20

_log = get_logger(__name__)

_waiting = metrics.gauge(
    "toban_executor_log_bytes", "Compressed log bytes in the journal that no archiver has committed."
)
_lines = metrics.counter("toban_executor_log_lines_total", "Lines of output taken from jobs.")
_bytes = metrics.counter("toban_executor_log_text_bytes_total", "Bytes of output taken from jobs.")
_left_lines = metrics.counter(
    "toban_executor_log_left_out_lines_total", "Lines of ended attempts that a limit left out.", ("reason",)
)
_left_bytes = metrics.counter(
    "toban_executor_log_left_out_bytes_total", "Bytes of ended attempts that a limit left out.", ("reason",)
)
_redacted = metrics.counter("toban_executor_log_redactions_total", "Values masked in the output of ended attempts.")
_budget = metrics.gauge("toban_executor_log_budget_bytes", "Compressed log bytes in the journal above which jobs wait.")
_full = metrics.gauge("toban_executor_log_full", "1 while jobs wait in their writes because the journal is full.")

Pack = Callable[[Sequence[Block]], bytes]


def count_end(end: AttemptEnd) -> None:
    """Into the metrics what the limits left out of an attempt, and what was masked."""
    _redacted.inc(end.redacted)
    for reason, (lines, size) in end.left_out.items():
        _left_lines.labels(reason).inc(lines)
        _left_bytes.labels(reason).inc(size)


@dataclass(slots=True)
class _Gathering:
    """Lines of one attempt and stream that are not in a chunk yet."""

    blocks: list[Block] = field(default_factory=list)
    size: int = 0
    lines: int = 0


class Collector:
    """`pack` makes the bytes of a chunk; `hold` stops (True) or resumes the reading of output; `on_stored` wakes the shipper."""

    def __init__(
        self, *, journal: Journal, pack: Pack, hold: Callable[[bool], None], clock: Clock, max_journal_bytes: int
    ) -> None:
        self.on_new: Callable[[], None] = lambda: None
        self.on_stored: Callable[[], None] = lambda: None
        self._journal = journal
        self._pack = pack
        self._hold = hold
        self._clock = clock
        self._max_journal_bytes = max_journal_bytes
        self._is_full = False
        _budget.set(max_journal_bytes)
        self._gathering: dict[tuple[AttemptKey, int], _Gathering] = {}
        self._size = 0
        self._wrote_at = float("-inf")
        self._tickets: dict[AttemptKey, bytes] = {}
        # Made but perhaps not on disk yet: kept until the journal has them.
        self._chunks: list[Chunk] = []
        self._seals: list[Seal] = []
        self._first_tickets: dict[AttemptKey, bytes] = {}

    def opened(self, key: AttemptKey, ticket: bytes) -> None:
        """An attempt begins; its ticket is used when it writes something."""
        self._tickets[key] = ticket

    def add(self, key: AttemptKey, block: Block) -> None:
        """Lines of an attempt, in order."""
        gathering = self._gathering.setdefault((key, block.stream), _Gathering())
        gathering.blocks.append(block)
        gathering.size += len(block.text)
        gathering.lines += block.lines
        self._size += len(block.text)
        _lines.inc(block.lines)
        _bytes.inc(len(block.text))
        if gathering.size >= CHUNK_BYTES:
            self._cut((key, block.stream))
        if self._size > MEMORY_BYTES:
            self._hold(True)
        self.on_new()

    def closed(self, key: AttemptKey, last_seq: int) -> None:
        """The attempt ended; one that wrote nothing leaves nothing."""
        if last_seq:
            for stream in (STDOUT, STDERR, SYSTEM):
                self._cut((key, stream))
            self._seals.append(Seal(key, last_seq))
            self.on_new()
        self._tickets.pop(key, None)

    @property
    def pending(self) -> bool:
        """True while something is not in the journal yet."""
        return bool(self._gathering or self._chunks or self._seals)

    async def run_once(self) -> int:
        """Gather for a moment, then write everything; returns the number of chunks."""
        if not self.pending:
            await self._relieve()
            return 0
        if not self._chunks:
            quiet = self._clock.monotonic() - self._wrote_at
            await self._clock.sleep(max(FIRST_SECONDS, GATHER_SECONDS - quiet))
        for place in list(self._gathering):
            self._cut(place)
        chunks, seals, tickets = self._chunks[:], self._seals[:], dict(self._first_tickets)
        size, self._wrote_at = self._size, self._clock.monotonic()
        await self._journal.put_chunks(chunks, seals, tickets)
        del self._chunks[: len(chunks)]
        del self._seals[: len(seals)]
        for key in tickets:
            self._first_tickets.pop(key, None)
        self._size -= size
        self.on_stored()
        await self._relieve()
        if self.pending:
            self.on_new()
        return len(chunks)

    async def _relieve(self) -> None:
        stored = await self._journal.log_bytes()
        _waiting.set(stored)
        self._note_full(stored > self._max_journal_bytes, stored)
        self._hold(self._is_full or self._size > MEMORY_BYTES)

    def _note_full(self, full: bool, stored: int) -> None:
        _full.set(full)
        if full and not self._is_full:
            _log.warning(
                "journal of logs is full: jobs wait in their writes until a log-archiver takes lines",
                bytes=stored,
                budget_bytes=self._max_journal_bytes,
            )
        elif self._is_full and not full:
            _log.info("journal of logs has room again", bytes=stored)
        self._is_full = full

    def _cut(self, place: tuple[AttemptKey, int]) -> None:
        """Make a chunk of what was gathered."""
        gathering = self._gathering.pop(place, None)
        if gathering is None:
            return
        key, stream = place
        first, last = gathering.blocks[0], gathering.blocks[-1]
        if key in self._tickets:
            self._first_tickets[key] = self._tickets.pop(key)
        self._chunks.append(
            Chunk(
                id=0,
                key=key,
                stream=stream,
                seq_from=first.seq_from,
                seq_to=last.seq_from + last.lines - 1,
                lines=gathering.lines,
                raw_bytes=gathering.size,
                first_ns=first.at_ns,
                last_ns=last.at_ns,
                data=self._pack(gathering.blocks),
            )
        )
