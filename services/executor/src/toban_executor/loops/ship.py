"""Ships log chunks from the journal to a log-archiver and forgets them once they are committed there."""

import asyncio

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.ports import Archivers, ChunkBatch, Journal, LogStream
from toban_observability import metrics
from toban_observability.logs import get_logger

_CHUNKS = 64
_BYTES = 1 << 20
_WINDOW = 4
"""Batches under way at a time, so that the line is busy while the archiver commits."""

_log = get_logger(__name__)
_shipped = metrics.counter(
    "toban_executor_log_chunks_total", "Log chunks by result: committed, or the refusal.", ("result",)
)


class Shipper:
    """Everything in the journal goes over one stream, in order of writing; after a failure it all goes again, to another
    archiver. Archivers store a chunk once."""

    def __init__(self, *, journal: Journal, archivers: Archivers) -> None:
        self._journal = journal
        self._archivers = archivers

    async def run_once(self) -> int:
        """Ship until nothing is left; returns the number of chunks. Raises TobanError when a stream fails."""
        if not (window := await self._window(0)):
            return 0
        sent = 0
        async with self._archivers.open() as stream:
            while window:
                await asyncio.gather(*(self._ship(stream, batch) for batch in window))
                sent += sum(len(batch.chunks) for batch in window)
                last = max((chunk.id for batch in window for chunk in batch.chunks), default=0)
                window = await self._window(last)
        return sent

    async def _window(self, after: int) -> list[ChunkBatch]:
        window: list[ChunkBatch] = []
        while len(window) < _WINDOW:
            batch = await self._journal.chunks_after(after, _CHUNKS, _BYTES)
            if batch.chunks:
                after = batch.chunks[-1].id
            if batch.chunks or batch.seals:
                window.append(batch)
            if not batch.chunks or batch.seals:
                break
        return window

    async def _ship(self, stream: LogStream, batch: ChunkBatch) -> None:
        result = await stream.append(batch)
        if result.lacks_ticket:
            raise TobanError(ErrorCode.TICKET_MISSING, "the archiver has not seen a ticket; all are sent again")
        for key, seq_from, code in result.refused:
            # Such a chunk can never be stored: keeping it would only hide those behind it.
            _log.error("archiver refused log lines", run_id=key.run_id, token=key.token, seq_from=seq_from, code=code)
            _shipped.labels(code).inc()
        _shipped.labels("committed").inc(len(batch.chunks) - len(result.refused))
        self._journal.drop_chunks([chunk.id for chunk in batch.chunks], [seal.key for seal in batch.seals])
