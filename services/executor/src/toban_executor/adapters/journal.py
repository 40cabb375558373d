"""Facts that must survive the executor's process, in SQLite (WAL, synchronous=FULL) inside its state directory.

One thread writes. All work that waits when it becomes free is one transaction, so one fsync serves many orders. When the disk
refuses, posted work is kept and repeated, and work that a caller awaits raises an error there.
"""

import asyncio
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_executor.adapters import journal_sql
from toban_executor.adapters.convert import report_from_bytes, report_to_bytes, stored_signed_epoch
from toban_executor.adapters.journal_rows import (
    Place,
    Statement,
    batch_rows,
    log_bytes,
    place_of,
    read_chunks,
    record_row,
    refused_chunks,
    report_row,
    tickets_of,
    waiting_bytes,
)
from toban_executor.decide.models import Report
from toban_executor.ports.coordinator import SignedEpoch
from toban_executor.ports.journal import JournalBatch, JournalContents
from toban_executor.ports.logs import ChunkBatch
from toban_fencing.epoch_gate import Record
from toban_observability import metrics
from toban_observability.logs import get_logger

_RETRY_SECONDS = 0.5
_BUSY_MS = 5000
_GATHER_SECONDS = 0.01

_log = get_logger(__name__)
_commits = metrics.counter("toban_executor_journal_commits_total", "Journal transactions by result.", ("result",))
_rows = metrics.counter("toban_executor_journal_writes_total", "Writes combined into journal transactions.")


class _Wake(IntEnum):
    """What the writer was last told of work that waits."""

    NOTHING = 0
    # Work that no caller awaits: it may gather for a moment.
    SOON = 1
    NOW = 2
    END = 3


@dataclass(slots=True, eq=False)
class _Work:
    """Statements to run, or a `read` of the connection; `done` gets the result or the error."""

    statements: Sequence[Statement] = ()
    read: Callable[[sqlite3.Connection], Any] | None = None
    done: Callable[[Any, Exception | None], None] | None = None


class Journal:
    """The journal of one state directory. Open it, `start` it on the event loop's thread, `close` it at the end.

    Raises UNAVAILABLE when it cannot be opened: the disk is full, or the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._connection = _open(path)
            # Reports that are, or will be, in quarantine.
            self._refused = set[Place](self._connection.execute(journal_sql.REFUSED_REPORTS))
        except sqlite3.Error as error:
            raise TobanError(
                ErrorCode.UNAVAILABLE,
                f"the executor's journal {path} cannot be opened: {error}; free its disk, or, when the file is damaged, "
                "move it away: undelivered outcomes and log lines in it are lost then",
            ) from error
        # Added to by the caller, then the writer is woken if it has not been; it resets `_woken`, then takes all.
        self._waiting: deque[_Work] = deque()
        self._wakes: queue.SimpleQueue[_Wake] = queue.SimpleQueue()
        self._woken = _Wake.NOTHING
        # Reports that are not dropped yet, each with its work where nothing else may have written it.
        self._reports: dict[Place, _Work | None] = {}
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
        # False from a failed write to the next one that succeeds.
        self.writable = True

    # ---- before the loop runs

    def remembered(self) -> JournalContents:
        """Everything that earlier processes left. Only before `start`."""
        query = self._connection.execute
        return JournalContents(
            epoch_max=int(self.meta("epoch_max") or 0),
            signed_epoch=self._signed_epoch(),
            seen=tuple(AttemptKey(run, token) for token, run in query("SELECT token, run_id FROM seen")),
            tombstones=tuple(AttemptKey(run, token) for token, run in query("SELECT token, run_id FROM tombstones")),
            reports=tuple(report_from_bytes(body) for (body,) in query("SELECT body FROM reports ORDER BY token, seq")),
            quarantined=tuple(
                (report_from_bytes(body), str(message))
                for body, message in query("SELECT body, message FROM refused_reports ORDER BY token, seq")
            ),
        )

    def meta(self, key: str) -> str:
        """A named value, empty when unknown. Only before `start`."""
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return "" if row is None else str(row[0])

    def _signed_epoch(self) -> SignedEpoch | None:
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'signed_epoch'").fetchone()
        return None if row is None else stored_signed_epoch(row[0])

    def ack_offset(self, guard: str) -> int:
        """Number of the last message of a guard whose content is, or was, in the journal. Only before `start`."""
        row = self._connection.execute("SELECT number FROM heard WHERE guard = ?", (guard,)).fetchone()
        return 0 if row is None else int(row[0])

    def has_ticket(self, key: AttemptKey) -> bool:
        """Whether the journal has the log ticket of an attempt. Only before `start`."""
        return bool(tickets_of(self._connection, [key]))

    def store_recovered(self, batch: JournalBatch) -> None:
        """As `store`, for recovered guard messages. Raises sqlite3.Error. Only before `start`."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for sql, values in batch_rows(batch):
                self._connection.execute(sql, values)

    def tidy(self) -> None:
        """All undelivered guard messages are recovered: drop acknowledgement offsets, and tickets of attempts without lines.

        Raises sqlite3.Error. Only before `start`.
        """
        self._connection.execute("DELETE FROM heard")
        self._connection.execute(journal_sql.DROP_UNUSED_TICKETS)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits and end the thread."""
        if self._thread.is_alive():
            self._wake(_Wake.END)
            self._thread.join()
        self._connection.close()

    # ---- writes

    async def record(self, records: Iterable[Record]) -> None:
        """On disk when this returns. Raises UNAVAILABLE when the disk refuses."""
        if statements := [record_row(record) for record in records]:
            await self._submit(_Work(statements=statements))

    async def set_meta(self, key: str, value: str) -> None:
        """Remember a named value, on disk when this returns."""
        await self._submit(_Work(statements=[("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))]))

    def post_records(self, records: Iterable[Record]) -> None:
        """As `record`, without waiting."""
        if statements := [record_row(record) for record in records]:
            self._post(statements)

    def post_signed_epoch(self, signed: SignedEpoch) -> None:
        """Keep it in place of the one before, without waiting."""
        self._post([("INSERT OR REPLACE INTO meta VALUES ('signed_epoch', ?)", (signed.message,))])

    def forget_below(self, token: int) -> None:
        """Forget seen and refused pairs below the smallest live token."""
        old = ("DELETE FROM seen WHERE token < ?", "DELETE FROM tombstones WHERE token < ?")
        self._post([(sql, (token,)) for sql in old])

    def put_report(self, report: Report) -> None:
        """Keep a report until a coordinator has answered it; one that is answered before it is written leaves nothing."""
        place, work = place_of(report.key, report.seq), _Work(statements=[report_row(report)])
        self._reports[place] = None if place in self._reports else work
        self._add(work, _Wake.SOON)

    def drop_reports(self, done: Iterable[tuple[AttemptKey, int]]) -> None:
        """Forget reports that were answered, quarantined ones too."""
        statements: list[Statement] = []
        for place in [place_of(key, seq) for key, seq in done]:
            if not self._withdraw(place):
                statements.append((journal_sql.DROP_REPORT, place))
            if place in self._refused:
                self._refused.discard(place)
                statements.append((journal_sql.DROP_REFUSED_REPORT, place))
        self._post(statements)

    def _withdraw(self, place: Place) -> bool:
        """Whether the writer has not taken the report, and will not."""
        work = self._reports.pop(place, None)
        if work is None:
            return False
        try:
            self._waiting.remove(work)
        except ValueError:
            return False
        return True

    def quarantine_report(self, report: Report, message: str) -> None:
        """Keep a refused report apart, with the text of the refusal, until it is dropped."""
        place = place_of(report.key, report.seq)
        self._reports[place] = None
        self._refused.add(place)
        row = (*place, report_to_bytes(report), message)
        self._post([(journal_sql.REFUSE_REPORT, row), (journal_sql.DROP_REPORT, place)])

    async def store(self, batch: JournalBatch) -> int:
        """Keep log chunks, ends and tickets until an archiver has committed them, and reports until they are answered.

        All or nothing; on disk when this returns. Returns the compressed bytes of log chunks that are there, quarantined ones
        included. Raises UNAVAILABLE when the disk refuses.
        """
        for report in batch.reports:
            self._reports[place_of(report.key, report.seq)] = None
        waiting: int = await self._submit(_Work(statements=batch_rows(batch), read=log_bytes))
        return waiting

    async def chunks_after(self, chunk_id: int, limit: int, max_bytes: int) -> ChunkBatch:
        """The next chunks in order of writing, with their tickets; the seals too once no chunk is left behind."""
        batch: ChunkBatch = await self._submit(_Work(read=lambda db: read_chunks(db, chunk_id, limit, max_bytes)))
        return batch

    def drop_chunks(self, ids: Iterable[int], seals: Iterable[AttemptKey]) -> None:
        """Forget what an archiver has committed; with the seal goes the attempt's ticket."""
        statements: list[Statement] = [(journal_sql.DROP_CHUNK, (chunk_id,)) for chunk_id in ids]
        for key in seals:
            pair = (key.token, key.run_id)
            statements.append((journal_sql.DROP_SEAL, pair))
            statements.append((journal_sql.DROP_TICKET, pair))
        self._post(statements)

    async def quarantine_chunks(self, ids: Iterable[int], seals: Iterable[AttemptKey]) -> int:
        """Keep refused chunks and seals apart, with their tickets; how many chunks are there now. Raises UNAVAILABLE when the disk refuses."""
        statements: list[Statement] = [
            (sql, (chunk_id,)) for chunk_id in ids for sql in (journal_sql.REFUSE_CHUNK, journal_sql.DROP_CHUNK)
        ]
        statements += [
            (sql, (key.token, key.run_id)) for key in seals for sql in (journal_sql.REFUSE_SEAL, journal_sql.DROP_SEAL)
        ]
        count: int = await self._submit(_Work(statements=statements, read=refused_chunks))
        return count

    async def requeue_chunks(self, most: int) -> tuple[int, int]:
        """Put `most` of the oldest quarantined chunks and seals back; how many chunks came back, and how many are left."""
        before: int = await self._submit(_Work(read=refused_chunks))
        left: int = await self._submit(
            _Work(statements=[(sql, (most,)) for sql in journal_sql.REQUEUE], read=refused_chunks)
        )
        return before - left, left

    async def log_bytes(self) -> int:
        """Compressed bytes of log chunks that wait on disk, without quarantined ones."""
        waiting: int = await self._submit(_Work(read=waiting_bytes))
        return waiting

    async def flush(self) -> None:
        """Return when everything posted before is on disk."""
        await self._submit(_Work(read=lambda _db: None))

    def _post(self, statements: Sequence[Statement]) -> None:
        if statements:
            self._add(_Work(statements=statements), _Wake.SOON)

    def _add(self, work: _Work, wake: _Wake) -> None:
        self._waiting.append(work)
        self._wake(wake)

    def _wake(self, wake: _Wake) -> None:
        """Once for all that waits: each wake-up of the writer interrupts the event loop."""
        if wake > self._woken:
            self._woken = wake
            self._wakes.put(wake)

    async def _submit(self, work: _Work) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        work.done = lambda result, error: _call_back(loop, future, result, error)
        self._add(work, _Wake.NOW)
        try:
            return await future
        except sqlite3.Error as error:
            raise TobanError(ErrorCode.UNAVAILABLE, f"the executor's journal cannot be written: {error}") from error

    # ---- the writer's thread

    def _write_all(self) -> None:
        kept: list[_Work] = []
        ending = False
        while not ending or kept:
            batch, ending = self._next_batch(kept, ending)
            kept = self._transact(batch)
            if kept and ending:
                return

    def _next_batch(self, kept: list[_Work], ending: bool) -> tuple[list[_Work], bool]:
        """What was kept and what waits; blocks until there may be something. A batch that no caller awaits may grow for a moment."""
        if not ending:
            wake = self._next_wake(_RETRY_SECONDS if kept else None)
            if wake is _Wake.SOON:
                wake = max(wake, self._next_wake(_GATHER_SECONDS))
            ending = wake is _Wake.END
        # Nothing follows the end; a wake-up for what is taken here already finds nothing.
        self._woken = _Wake.END if ending else _Wake.NOTHING
        batch = list(kept)
        # The event loop may withdraw the last work between a look at the queue and its taking.
        with suppress(IndexError):
            while True:
                batch.append(self._waiting.popleft())
        return batch, ending

    def _next_wake(self, timeout: float | None) -> _Wake:
        try:
            return self._wakes.get(timeout=timeout)
        except queue.Empty:
            return _Wake.NOTHING

    def _transact(self, batch: list[_Work]) -> list[_Work]:
        """One transaction; returns the work to repeat."""
        if not batch:
            return []
        results: list[Any] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for work in batch:
                for sql, values in work.statements:
                    self._connection.execute(sql, values)
                results.append(work.read(self._connection) if work.read else None)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            return self._failed(batch, error)
        self.writable = True
        _commits.labels("ok").inc()
        _rows.inc(sum(len(work.statements) for work in batch))
        for work, result in zip(batch, results, strict=True):
            if work.done:
                work.done(result, None)
        return []

    def _failed(self, batch: list[_Work], error: sqlite3.Error) -> list[_Work]:
        self.writable = False
        _commits.labels("error").inc()
        _log.error("journal write failed", error=str(error), waiting=len(batch), next_try_seconds=_RETRY_SECONDS)
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for work in batch:
            if work.done:
                work.done(None, error)
        return [work for work in batch if not work.done]


def _open(path: Path) -> sqlite3.Connection:
    # Its other files get the same mode.
    path.touch(mode=0o600)
    path.chmod(0o600)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1000)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.executescript(journal_sql.SCHEMA + journal_sql.SIZE)
    return connection


def _call_back(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", result: Any, error: Exception | None
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The event loop has ended, and its callers with it.
        pass
