"""Gathers the output of jobs into chunks and puts them into the journal, from where they are shipped.

The end of an attempt that wrote something waits for nothing else: its last chunks, its seal and its outcome are one transaction, and
only then the outcome is reported.

Bounded: when more waits than the disk takes, or the journal holds more than its share, the guards read no more output, and jobs
wait in their writes. What was read before that is still taken, and so are the starts and ends of attempts.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from toban_domain.errors import TobanError
from toban_domain.outcome import AttemptKey
from toban_executor.decide.log_block import CHUNK_BYTES, STDERR, STDOUT, SYSTEM, LogBlock
from toban_executor.decide.models import AttemptEnd, Report
from toban_executor.decide.pending_outcomes import PATIENCE_SECONDS, Conclusions
from toban_executor.ports import Chunk, Journal, Seal, Taken
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

GATHER_SECONDS = 0.05
"""From one write to the next at least, while output keeps coming."""
FIRST_SECONDS = 0.005
"""After a quiet time: who follows a run sees a line soon, and what is printed together is written together."""
QUIET_SECONDS = 0.5
"""So long after the last write it is written down how far guards whose jobs print nothing have been heard; they hear of it with their next order."""
MARKS_AGAIN_SECONDS = 30.0
"""So long after the disk has refused these marks alone they are tried again, unless there are lines to write."""
LOOK_SECONDS = 0.5
"""How often it is looked, while a write lasts, at what has waited for it for too long."""
MEMORY_BYTES = 8 << 20

_log = get_logger(__name__)

_waiting = metrics.gauge(
    "toban_executor_log_bytes", "Compressed log bytes in the journal that no log-archiver has acknowledged."
)
_lines = metrics.counter("toban_executor_log_lines_total", "Output lines read from jobs.")
_bytes = metrics.counter("toban_executor_log_text_bytes_total", "Output bytes read from jobs.")
_left_lines = metrics.counter(
    "toban_executor_log_left_out_lines_total",
    "Output lines of ended attempts dropped because of a limit, by reason.",
    ("reason",),
)
_left_bytes = metrics.counter(
    "toban_executor_log_left_out_bytes_total",
    "Output bytes of ended attempts dropped because of a limit, by reason.",
    ("reason",),
)
_redacted = metrics.counter("toban_executor_log_redactions_total", "Values redacted in the output of ended attempts.")
_budget = metrics.gauge(
    "toban_executor_log_budget_bytes", "Compressed log bytes in the journal above which jobs block on writing output."
)
_ahead = metrics.counter(
    "toban_executor_outcomes_ahead_total",
    "Outcomes reported before the attempt's last log lines were stored in the journal (failed or slow disk, or the executor stopped).",
)
_full = metrics.gauge(
    "toban_executor_log_full", "1 while jobs block on writing output because the log budget of the journal is used up."
)

Pack = Callable[[Sequence[LogBlock]], bytes]


def count_end(end: AttemptEnd) -> None:
    """Into the metrics what the limits left out of an attempt, and what was masked."""
    _redacted.inc(end.redacted)
    for reason, (lines, size) in end.left_out.items():
        _left_lines.labels(reason).inc(lines)
        _left_bytes.labels(reason).inc(size)


@dataclass(slots=True)
class _Gathering:
    """Lines of one attempt and stream that are not in a chunk yet."""

    blocks: list[LogBlock] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True)
class _Write:
    """Under way: what goes to disk, and how many bytes of text that are in memory it has."""

    taken: Taken
    size: int
    task: "asyncio.Task[int]"


class Collector:
    """`pack` makes the bytes of a chunk; `hold` stops (True) or resumes the reading of output.

    `on_new` asks for a turn, `on_stored` wakes the shipper, `on_report` hears each outcome that may be reported. `heard` says how far the guards
    have been heard, `on_kept` how much of that is on disk.
    """

    def __init__(
        self, *, journal: Journal, pack: Pack, hold: Callable[[bool], None], clock: Clock, max_journal_bytes: int
    ) -> None:
        self.on_new: Callable[[], None] = lambda: None
        self.on_stored: Callable[[], None] = lambda: None
        self.on_report: Callable[[Report], None] = lambda _report: None
        self.heard: Callable[[], Mapping[str, int]] = dict
        self.on_kept: Callable[[Mapping[str, int]], None] = lambda _marks: None
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
        # Not before this time the marks alone are written; "-inf" unless the disk has refused them.
        self._marks_at = float("-inf")
        # At most one, whatever becomes of the turn that began it: a disk that hangs may still take it.
        self._write: _Write | None = None
        self._tickets: dict[AttemptKey, bytes] = {}
        # Made but perhaps not on disk yet: kept until the journal has them.
        self._chunks: list[Chunk] = []
        self._seals: list[Seal] = []
        self._first_tickets: dict[AttemptKey, bytes] = {}
        self._conclusions = Conclusions()
        self._nap: asyncio.Future[None] | None = None

    def opened(self, key: AttemptKey, ticket: bytes) -> None:
        """An attempt begins; its ticket is used when it writes something."""
        self._tickets[key] = ticket

    def add(self, key: AttemptKey, block: LogBlock) -> None:
        """Lines of an attempt, in order."""
        gathering = self._gathering.setdefault((key, block.stream), _Gathering())
        gathering.blocks.append(block)
        gathering.size += len(block.text)
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
            self._wake()
        self._tickets.pop(key, None)

    def conclude(self, report: Report) -> None:
        """The outcome of an attempt that was `closed`: into the journal, and on to its report once its lines are there."""
        if any(seal.key == report.key for seal in self._seals):
            self._conclusions.wait(report, self._clock.monotonic())
        else:
            self._journal.put_report(report)
            self.on_report(report)

    def release(self) -> None:
        """This process ends: report every outcome, although the disk has not taken its lines."""
        self._report_ahead(self._conclusions.all())

    async def finish(self) -> None:
        """No turn will come and the guards are not heard any more: write down what they said last, as far as the disk takes it soon."""
        rest = asyncio.ensure_future(self._write_rest())
        nap = asyncio.ensure_future(self._clock.sleep(PATIENCE_SECONDS))
        try:
            await asyncio.wait([rest, nap], return_when=asyncio.FIRST_COMPLETED)
        finally:
            rest.cancel()
            nap.cancel()
        self.release()

    async def _write_rest(self) -> None:
        """The marks alone too: a guard that is not told that its words are on disk leaves a file, also for an outcome that was answered."""
        if self._write is not None:
            with contextlib.suppress(TobanError):
                await self._ended(self._write)
        if self.pending or self.heard():
            with contextlib.suppress(TobanError):
                await self._ended(self._begin(self.heard()))

    @property
    def pending(self) -> bool:
        """True while something is not in the journal yet."""
        return bool(self._gathering or self._chunks or self._seals)

    async def run_once(self) -> int:
        """Gather for a moment, then write everything; returns the number of chunks. Raises TobanError when the disk refuses lines."""
        if self._write is not None:
            return await self._ended(self._write)
        if not self.pending:
            return await self._ended(self._begin(self._quiet_marks()))
        await self._gather()
        return await self._ended(self._begin(self.heard()))

    def _begin(self, heard: Mapping[str, int]) -> _Write:
        """Write all that there is. `heard` was asked for right before, so that this has everything up to there, or an earlier write had it."""
        if self.pending:
            self._wrote_at = self._clock.monotonic()
        for place in list(self._gathering):
            self._cut(place)
        taken = Taken(
            chunks=self._chunks[:],
            seals=self._seals[:],
            tickets=dict(self._first_tickets),
            reports=self._conclusions.waiting,
            heard=heard,
        )
        task = asyncio.create_task(self._journal.take(taken))
        # One that nobody waits for any more at the end of this process may fail unheard.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._write = _Write(taken, self._size, task)
        return self._write

    async def _ended(self, write: _Write) -> int:
        """When the disk has taken it. While it does not, what has waited for too long is reported ahead."""
        while not write.task.done():
            nap = asyncio.ensure_future(self._clock.sleep(LOOK_SECONDS))
            try:
                await asyncio.wait([write.task, nap], return_when=asyncio.FIRST_COMPLETED)
            finally:
                nap.cancel()
            if not write.task.done():
                self._report_overdue()
        self._write = None
        try:
            stored = write.task.result()
        except TobanError as error:
            self._report_overdue()
            if write.taken.chunks or write.taken.seals:
                raise
            self._note_refused(error)
        else:
            self._stored(write, stored)
        return len(write.taken.chunks)

    def _stored(self, write: _Write, stored: int) -> None:
        """It is on disk, where `stored` bytes of log wait now."""
        taken = write.taken
        self._forget(taken)
        self._size -= write.size
        for report in self._conclusions.stored(seal.key for seal in taken.seals):
            self.on_report(report)
        self.on_kept(taken.heard)
        if taken.chunks or taken.seals:
            self.on_stored()
        if taken.heard:
            self._marks_at = float("-inf")
        self._note_stored(stored)
        if self.pending:
            self.on_new()

    def _forget(self, taken: Taken) -> None:
        """This is on disk."""
        del self._chunks[: len(taken.chunks)]
        del self._seals[: len(taken.seals)]
        for key in taken.tickets:
            self._first_tickets.pop(key, None)

    async def _gather(self) -> None:
        """Wait for more lines, unless a chunk is full or an attempt has ended."""
        if self._chunks or self._seals:
            return
        quiet = self._clock.monotonic() - self._wrote_at
        self._nap = asyncio.ensure_future(self._clock.sleep(max(FIRST_SECONDS, GATHER_SECONDS - quiet)))
        try:
            await asyncio.wait([self._nap])
        finally:
            self._nap.cancel()
            self._nap = None

    def _wake(self) -> None:
        """Somebody waits for what there is."""
        if self._nap is not None:
            self._nap.cancel()
        self.on_new()

    def _report_overdue(self) -> None:
        self._report_ahead(self._conclusions.overdue(self._clock.monotonic()))

    def _report_ahead(self, reports: Iterable[Report]) -> None:
        for report in reports:
            _ahead.inc()
            _log.error(
                "an outcome is reported before the last lines of its attempt are on disk: the journal was not written in time",
                run_id=report.key.run_id,
                token=report.key.token,
            )
            self._journal.put_report(report)
            self.on_report(report)

    def _quiet_marks(self) -> Mapping[str, int]:
        """No line waits. What was said beside lines and last words of those is in the journal too once this is written."""
        now = self._clock.monotonic()
        return self.heard() if now >= max(self._wrote_at + QUIET_SECONDS, self._marks_at) else {}

    def _note_refused(self, error: TobanError) -> None:
        """No line waits for the disk: what it did not take makes files of guards that say what is known, no more."""
        if self._marks_at == float("-inf"):
            _log.warning("cannot persist guard acknowledgement offsets", error=error.message)
        self._marks_at = self._clock.monotonic() + MARKS_AGAIN_SECONDS

    def _note_stored(self, stored: int) -> None:
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
        key, _stream = place
        if key in self._tickets:
            self._first_tickets[key] = self._tickets.pop(key)
        self._chunks.append(Chunk.of(key, gathering.blocks, self._pack(gathering.blocks)))
