"""Ships log chunks from the journal to a log-archiver and drops them once they are committed there."""

import asyncio
from collections import Counter, deque

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.ports import Archivers, ChunkBatch, Journal, LogStream
from toban_observability import metrics
from toban_observability.logs import get_logger

_CHUNKS = 64
_BYTES = 1 << 20
_WINDOW = 4
"""Batches in flight at a time, so that the connection is busy while the archiver commits."""

_log = get_logger(__name__)
_shipped = metrics.counter(
    "toban_executor_log_chunks_total", "Log chunks by result: committed, or the refusal.", ("result",)
)


class LogShipper:
    """Sends everything in the journal over one stream, in order of writing; after a failure again, to another archiver.

    Archivers store a chunk once.
    """

    def __init__(self, *, journal: Journal, archivers: Archivers) -> None:
        self._journal = journal
        self._archivers = archivers

    async def run_once(self) -> int:
        """Ship until nothing is left; returns the number of chunks. Raises TobanError when a stream fails."""
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
        # Such chunks can never be stored: keeping them would only block those behind them.
        refused = Counter(code for _, _, code in result.refused)
        for code, chunks in refused.items():
            # One line per code: a run that writes much has many chunks a second.
            key, seq_from, _ = next(one for one in result.refused if one[2] == code)
            _log.error(
                "archiver refused log lines",
                run_id=key.run_id,
                token=key.token,
                seq_from=seq_from,
                code=code,
                chunks=chunks,
            )
            _shipped.labels(code).inc(chunks)
        _shipped.labels("committed").inc(len(batch.chunks) - len(result.refused))
        self._journal.drop_chunks([chunk.id for chunk in batch.chunks], [seal.key for seal in batch.seals])


async def _await_oldest(in_flight: deque[asyncio.Task[None]], *, down_to: int) -> None:
    """Wait for the oldest until `down_to` are left; raises what they raise."""
    while len(in_flight) > down_to:
        await in_flight[0]
        in_flight.popleft()
