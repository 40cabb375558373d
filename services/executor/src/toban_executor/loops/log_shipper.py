"""Ships log chunks from the journal to a log-archiver and drops them once they are committed there."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.app.outcome_reporter import OutcomeReporter, quarantined
from toban_executor.ports.journal import Journal
from toban_executor.ports.logs import Archivers, ChunkBatch, LogStream, Shipped
from toban_observability import metrics
from toban_observability.logs import get_logger

QUARANTINE_SECONDS = 60.0
"""How often refused outcomes and log chunks are sent again."""
_CHUNKS = 64
_BYTES = 1 << 20
_FINAL = frozenset({"CHUNK_INVALID"})
"""Refusals of the chunk itself, which no archiver will ever store."""
_REQUEUE = 1000
_WINDOW = 4
"""Batches in flight at a time, so that the connection is busy while the archiver commits."""

_log = get_logger(__name__)
_shipped = metrics.counter(
    "toban_executor_log_chunks_total", "Log chunks by result: committed, or the refusal.", ("result",)
)


class Quarantine:
    """What was refused is sent again: outcomes to a coordinator, log chunks to an archiver. `wake_shipper` asks for a turn of the shipper."""

    def __init__(self, *, reporter: OutcomeReporter, shipper: "LogShipper", wake_shipper: Callable[[], None]) -> None:
        self._reporter = reporter
        self._shipper = shipper
        self._wake_shipper = wake_shipper

    async def run_once(self) -> None:
        """One turn. Raises TobanError when the journal cannot be read."""
        self._reporter.resend()
        if await self._shipper.resend():
            self._wake_shipper()


class LogShipper:
    """Sends everything in the journal over one stream, in order of writing; after a failure again, to another archiver.

    Archivers store a chunk once. What one refuses, but for chunks that are damaged, is quarantined: the archiver may have
    a wrong CA, trust domain or clock. `resend` tries it again.
    """

    def __init__(self, *, journal: Journal, archivers: Archivers) -> None:
        self._journal = journal
        self._archivers = archivers
        # Chunks in quarantine.
        self.quarantined = 0
        self._refused = 0
        self._probing = False

    async def run_once(self) -> int:
        """Ship until nothing is left; returns the number of chunks. Raises TobanError when a stream fails."""
        sent = 0
        while True:
            refused = self._refused
            sent += await self._ship_queue()
            if self._refused > refused:
                self._probing = False
                self._archivers.try_another()
            elif self._probing:
                # The probe was accepted, so the rest of the quarantine may be as well.
                self._probing = await self._requeue(_REQUEUE) > 0
            if not self._probing:
                return sent

    async def resend(self) -> bool:
        """Puts the oldest refused chunks back, as a probe: the rest follows when an archiver accepts them. False: there are none."""
        self._probing = await self._requeue(_CHUNKS) > 0
        return self._probing

    async def _requeue(self, most: int) -> int:
        back, left = await self._journal.requeue_chunks(most)
        # Those that are tried again count until an archiver has accepted them.
        self._count(back + left)
        return back

    def _count(self, chunks: int) -> None:
        self.quarantined = chunks
        quarantined.labels("chunk").set(chunks)

    async def _ship_queue(self) -> int:
        first = await self._journal.chunks_after(0, _CHUNKS, _BYTES)
        if not first.chunks and not first.seals:
            return 0
        async with self._archivers.open() as stream:
            in_flight: deque[asyncio.Task[None]] = deque()
            try:
                return await self._ship_all(stream, first, in_flight)
            finally:
                for task in in_flight:
                    task.cancel()
                await asyncio.gather(*in_flight, return_exceptions=True)

    async def _ship_all(self, stream: LogStream, batch: ChunkBatch, in_flight: deque[asyncio.Task[None]]) -> int:
        """One batch after the other, the next one as soon as the oldest in flight is committed."""
        sent = last = 0
        while batch.chunks or batch.seals:
            in_flight.append(asyncio.ensure_future(self._ship(stream, batch)))
            sent += len(batch.chunks)
            last = batch.chunks[-1].id if batch.chunks else last
            # Seals stay in the journal until they are committed: the next batch would contain them again.
            await _await_oldest(in_flight, down_to=0 if batch.seals else _WINDOW - 1)
            batch = await self._journal.chunks_after(last, _CHUNKS, _BYTES)
            if not batch.chunks and not batch.seals:
                await _await_oldest(in_flight, down_to=0)
                batch = await self._journal.chunks_after(last, _CHUNKS, _BYTES)
        return sent

    async def _ship(self, stream: LogStream, batch: ChunkBatch) -> None:
        result = await stream.append(batch)
        if result.lacks_ticket:
            raise TobanError(ErrorCode.TICKET_MISSING, "the archiver has not seen a ticket; all are sent again")
        kept = {(key, seq_from) for key, seq_from, code in result.refused if code not in _FINAL}
        _note_refused(result)
        _shipped.labels("committed").inc(len(batch.chunks) - sum(1 for _, seq_from, _ in result.refused if seq_from))
        if kept:
            self._refused += len(kept)
            chunks = [chunk.id for chunk in batch.chunks if (chunk.key, chunk.seq_from) in kept]
            seals = [seal.key for seal in batch.seals if (seal.key, 0) in kept]
            self._count(await self._journal.quarantine_chunks(chunks, seals))
        # Without those in quarantine, which are other rows now.
        self._journal.drop_chunks(
            [chunk.id for chunk in batch.chunks if (chunk.key, chunk.seq_from) not in kept],
            [seal.key for seal in batch.seals if (seal.key, 0) not in kept],
        )


def _note_refused(result: Shipped) -> None:
    """One line per code: a run that writes much has many chunks a second."""
    for code, chunks in Counter(code for _, _, code in result.refused).items():
        key, seq_from, _ = next(one for one in result.refused if one[2] == code)
        _log.error(
            "archiver refused log lines; dropped"
            if code in _FINAL
            else "archiver refused log lines; kept in quarantine",
            run_id=key.run_id,
            token=key.token,
            seq_from=seq_from,
            code=code,
            chunks=chunks,
        )
        _shipped.labels(code).inc(chunks)


async def _await_oldest(in_flight: deque[asyncio.Task[None]], *, down_to: int) -> None:
    """Wait for the oldest until `down_to` are left; raises what they raise."""
    while len(in_flight) > down_to:
        await in_flight[0]
        in_flight.popleft()
