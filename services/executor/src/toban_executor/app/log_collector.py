"""Gathers the output of jobs into chunks and writes them to the journal, from where they are shipped.

The end of an attempt that wrote something is written at once: its last chunks, its seal and its outcome are one transaction,
and the outcome is reported after that.

Bounded: when more waits than the disk accepts, or the journal exceeds its budget, the guards stop reading output, and jobs
block in their writes. Output that was read before is still stored; starts and ends of attempts are never held back.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from toban_domain.errors import TobanError
from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.app.chunk_buffer import ChunkBuffer, Pack
from toban_executor.decide.models import AttemptEnd, Report
from toban_executor.decide.outcome import OUTCOME_TIMEOUT_SECONDS, PendingOutcomes
from toban_executor.ports.guards import GuardOutput
from toban_executor.ports.journal import Journal, JournalBatch
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

GATHER_SECONDS = 0.05
"""From one write to the next at least, while output keeps arriving."""
FIRST_SECONDS = 0.005
"""After a quiet time: a follower of a run sees a line soon, and lines printed together are written together."""
QUIET_SECONDS = 0.5
"""So long after the last write, acknowledgement offsets of guards whose jobs print nothing are persisted."""
OFFSETS_RETRY_SECONDS = 30.0
"""Time until a failed write of offsets alone is repeated, unless there are lines to write."""
CHECK_SECONDS = 0.5
"""How often overdue outcomes are looked for while a write is in progress."""
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


def count_end(end: AttemptEnd) -> None:
    """Count what the limits dropped of an ended attempt, and what was masked."""
    _redacted.inc(end.redacted)
    for reason, (lines, size) in end.left_out.items():
        _left_lines.labels(reason).inc(lines)
        _left_bytes.labels(reason).inc(size)


@dataclass(frozen=True, slots=True)
class _Write:
    """A write in progress. `size` is the text in memory that it releases, in bytes."""

    batch: JournalBatch
    size: int
    task: "asyncio.Task[int]"


class LogCollector:
    """`pack` makes the bytes of a chunk. `wake` asks for a turn of `run_once`, `wake_shipper` for one of the shipper.

    `report` gets each outcome that may be reported.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        guards: GuardOutput,
        pack: Pack,
        clock: Clock,
        max_journal_bytes: int,
        wake: Callable[[], None],
        wake_shipper: Callable[[], None],
        report: Callable[[Report], None],
    ) -> None:
        self._journal = journal
        self._guards = guards
        self._clock = clock
        self._max_journal_bytes = max_journal_bytes
        self._wake = wake
        self._wake_shipper = wake_shipper
        self._report = report
        self._is_full = False
        _budget.set(max_journal_bytes)
        self._buffer = ChunkBuffer(pack=pack)
        self._wrote_at = float("-inf")
        # Offsets alone are not written before this time; "-inf" unless the disk has refused them.
        self._offsets_at = float("-inf")
        # At most one, even when the turn that began it was cancelled: a disk that hangs may still complete it.
        self._write: _Write | None = None
        self._outcomes = PendingOutcomes()
        self._gather_timer: asyncio.Future[None] | None = None

    def opened(self, key: AttemptKey, ticket: bytes) -> None:
        """An attempt begins; its ticket is used when it writes something."""
        self._buffer.open(key, ticket)

    def add(self, key: AttemptKey, block: LogBlock) -> None:
        """Lines of an attempt, in order."""
        self._buffer.add(key, block)
        _lines.inc(block.lines)
        _bytes.inc(len(block.text))
        if self._buffer.size > MEMORY_BYTES:
            self._guards.hold_output(True)
        self._wake()

    def closed(self, key: AttemptKey, last_seq: int) -> None:
        """The attempt ended; one that wrote nothing leaves nothing."""
        self._buffer.close(key, last_seq)
        if last_seq:
            self._end_gathering()

    def submit_outcome(self, report: Report) -> None:
        """The outcome of an attempt that was `closed`: stored in the journal, and reported once its lines are there too."""
        if self._buffer.has_seal(report.key):
            self._outcomes.wait(report, self._clock.monotonic())
        else:
            self._journal.put_report(report)
            self._report(report)

    def release_outcomes(self) -> None:
        """This process ends: report every outcome, although its lines are not on disk."""
        self._report_ahead(self._outcomes.all())

    async def finish(self) -> None:
        """After the last turn, when the guards are not read any more: write what is left, for OUTCOME_TIMEOUT_SECONDS at most."""
        rest = asyncio.ensure_future(self._write_rest())
        timer = asyncio.ensure_future(self._clock.sleep(OUTCOME_TIMEOUT_SECONDS))
        try:
            await asyncio.wait([rest, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            rest.cancel()
            timer.cancel()
        self.release_outcomes()

    async def _write_rest(self) -> None:
        """Offsets alone too: a guard without an acknowledgement leaves a spool file, even for an outcome that was answered."""
        if self._write is not None:
            with contextlib.suppress(TobanError):
                await self._finish_write(self._write)
        if self.pending or self._guards.ack_offsets():
            with contextlib.suppress(TobanError):
                await self._finish_write(self._begin_write(self._guards.ack_offsets()))

    @property
    def outcomes_pending(self) -> list[AttemptKey]:
        """Attempts whose outcome waits for its last lines to be in the journal."""
        return [report.key for report in self._outcomes.waiting]

    @property
    def pending(self) -> bool:
        """True while something is not in the journal yet."""
        return self._buffer.pending

    async def run_once(self) -> int:
        """Gather for a moment, then write everything; returns the number of chunks. Raises TobanError when the disk refuses lines."""
        if self._write is not None:
            return await self._finish_write(self._write)
        if not self.pending:
            return await self._finish_write(self._begin_write(self._idle_offsets()))
        await self._gather()
        return await self._finish_write(self._begin_write(self._guards.ack_offsets()))

    def _begin_write(self, offsets: Mapping[str, int]) -> _Write:
        """Write all that there is. `offsets` were read right before: this write or an earlier one has everything up to them."""
        if self.pending:
            self._wrote_at = self._clock.monotonic()
        batch = self._buffer.batch(reports=self._outcomes.waiting, ack_offsets=offsets)
        task = asyncio.create_task(self._journal.store(batch))
        # Retrieved here: at the end of this process a write may fail after its caller was cancelled.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._write = _Write(batch, self._buffer.size, task)
        return self._write

    async def _finish_write(self, write: _Write) -> int:
        """Wait for the disk; returns the number of chunks. Meanwhile overdue outcomes are reported ahead of their lines."""
        while not write.task.done():
            timer = asyncio.ensure_future(self._clock.sleep(CHECK_SECONDS))
            try:
                await asyncio.wait([write.task, timer], return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
            if not write.task.done():
                self._report_overdue()
        self._write = None
        try:
            stored = write.task.result()
        except TobanError as error:
            self._report_overdue()
            if write.batch.chunks or write.batch.seals:
                raise
            self._note_refused(error)
        else:
            self._stored(write, stored)
        return len(write.batch.chunks)

    def _stored(self, write: _Write, stored: int) -> None:
        """It is on disk, where `stored` bytes of log wait now."""
        batch = write.batch
        self._buffer.drop(batch, write.size)
        for report in self._outcomes.stored(seal.key for seal in batch.seals):
            self._report(report)
        self._guards.ack(batch.ack_offsets)
        if batch.chunks or batch.seals:
            self._wake_shipper()
        if batch.ack_offsets:
            self._offsets_at = float("-inf")
        self._note_stored(stored)
        if self.pending:
            self._wake()

    async def _gather(self) -> None:
        """Wait for more lines, unless a chunk is full or an attempt has ended."""
        if self._buffer.urgent:
            return
        quiet = self._clock.monotonic() - self._wrote_at
        self._gather_timer = asyncio.ensure_future(self._clock.sleep(max(FIRST_SECONDS, GATHER_SECONDS - quiet)))
        try:
            await asyncio.wait([self._gather_timer])
        finally:
            self._gather_timer.cancel()
            self._gather_timer = None

    def _end_gathering(self) -> None:
        """An attempt has ended: write at once."""
        if self._gather_timer is not None:
            self._gather_timer.cancel()
        self._wake()

    def _report_overdue(self) -> None:
        self._report_ahead(self._outcomes.overdue(self._clock.monotonic()))

    def _report_ahead(self, reports: Iterable[Report]) -> None:
        for report in reports:
            _ahead.inc()
            _log.error(
                "outcome reported before the last lines of its attempt are on disk: the journal was not written in time",
                run_id=report.key.run_id,
                token=report.key.token,
            )
            self._journal.put_report(report)
            self._report(report)

    def _idle_offsets(self) -> Mapping[str, int]:
        """No line waits: the offsets to write alone, empty while it is too early for that."""
        now = self._clock.monotonic()
        return self._guards.ack_offsets() if now >= max(self._wrote_at + QUIET_SECONDS, self._offsets_at) else {}

    def _note_refused(self, error: TobanError) -> None:
        """Only offsets were refused. Without them guards leave spool files whose content the journal already has."""
        if self._offsets_at == float("-inf"):
            _log.warning("cannot persist guard acknowledgement offsets", error=error.message)
        self._offsets_at = self._clock.monotonic() + OFFSETS_RETRY_SECONDS

    def _note_stored(self, stored: int) -> None:
        _waiting.set(stored)
        self._note_full(stored > self._max_journal_bytes, stored)
        self._guards.hold_output(self._is_full or self._buffer.size > MEMORY_BYTES)

    def _note_full(self, full: bool, stored: int) -> None:
        _full.set(full)
        if full and not self._is_full:
            _log.warning(
                "log journal is full: jobs block in their writes until a log-archiver accepts lines",
                bytes=stored,
                budget_bytes=self._max_journal_bytes,
            )
        elif self._is_full and not full:
            _log.info("log journal is below its budget again", bytes=stored)
        self._is_full = full
