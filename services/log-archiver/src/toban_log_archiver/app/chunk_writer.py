"""The one writer of this process: what all streams submit while a commit is under way is committed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from toban_log_archiver.app.followers import CHANNEL, wake_payload
from toban_log_archiver.decide.stored_chunks import NewChunk
from toban_log_archiver.store import chunks, log_attempts
from toban_log_archiver.store.log_attempts import TokenNote
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock
from toban_runtime.group_commit import GroupCommit, GroupLimits
from toban_store.errors import Refused, StoreError, Unsuitable
from toban_store.pool import Pool
from toban_store.tx import tx

# One commit takes at most this much compressed data, and this many requests.
MAX_COMMIT_BYTES = 8 * 1024 * 1024
MAX_COMMIT_REQUESTS = 500
# Streams wait (and so slow their senders down) while this much has not been committed.
MAX_WAITING_BYTES = 32 * 1024 * 1024
MAX_TRIES = 4

Place = tuple[int, int, int, int]
Refusals = Mapping[Place, str]
"""Chunks that are not stored, each with the reason."""
_log = get_logger(__name__)
_chunks = metrics.counter("toban_log_chunks_total", "Chunks by result: stored, duplicate, refused.", ("result",))
_lines = metrics.counter("toban_log_lines_total", "Lines in committed chunks.")
_raw = metrics.counter("toban_log_bytes_total", "Uncompressed output bytes in committed chunks.")
_data = metrics.counter("toban_log_compressed_bytes_total", "Compressed bytes in committed chunks.")
_seconds = metrics.histogram("toban_log_commit_seconds", "Commit latency of a batch of chunks.")
_waiting = metrics.gauge("toban_log_waiting_bytes", "Compressed bytes waiting for a commit.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one request adds; it is committed as a whole or not at all."""

    chunks: Sequence[NewChunk] = ()
    notes: Sequence[TokenNote] = ()

    @property
    def size(self) -> int:
        """Compressed bytes."""
        return sum(len(chunk.data) for chunk in self.chunks)


class ChunkWriter:
    """`submit` work, await its future: it is committed then, and the future's value has the refused chunks, each with the reason.

    Work is committed in the order of submission, so a seal never comes before its lines.
    """

    def __init__(self, *, pool: Pool, clock: Clock, on_missing_partition: Callable[[], None]) -> None:
        self._on_missing_partition = on_missing_partition
        self._pool = pool
        self._clock = clock
        self._backoff = Backoff(base=0.05, cap=1.0)
        self._group: GroupCommit[Work, Refusals] = GroupCommit(
            self._commit_group,
            limits=GroupLimits(max_items=MAX_COMMIT_REQUESTS, max_size=MAX_COMMIT_BYTES),
            size_of=lambda work: work.size,
            name="chunk writer",
        )
        self._room = asyncio.Condition()
        self._bytes = 0

    async def submit(self, work: Work) -> asyncio.Future[Refusals]:
        """Adds work, as soon as there is room. The future raises StoreError when the commit failed: send it again."""
        if not work.chunks and not work.notes:
            nothing: asyncio.Future[Refusals] = asyncio.get_running_loop().create_future()
            nothing.set_result({})
            return nothing
        async with self._room:
            await self._room.wait_for(lambda: self._bytes < MAX_WAITING_BYTES)
            self._add(work.size)
            return self._group.enqueue(work)

    async def close(self) -> None:
        """Cancels what is not committed yet, and its futures."""
        await self._group.close()

    def _add(self, size: int) -> None:
        self._bytes += size
        _waiting.set(self._bytes)

    async def _commit_group(self, works: Sequence[Work]) -> list[Refusals | Exception]:
        try:
            return await self._commit(works)
        finally:
            async with self._room:
                self._add(-sum(work.size for work in works))
                self._room.notify_all()

    async def _commit(self, works: Sequence[Work]) -> list[Refusals | Exception]:
        """One result for each. After a refusal each request is committed alone, so that only the bad one fails."""
        try:
            refused = await self._write_with_retries(works)
        except (Refused, Unsuitable) as error:
            if len(works) > 1:
                return [result for work in works for result in await self._commit([work])]
            return [self._result_of_refused(works[0], error)]
        except StoreError as error:
            return [error] * len(works)
        return [
            {chunk.place: refused[chunk.place] for chunk in work.chunks if chunk.place in refused} for work in works
        ]

    def _result_of_refused(self, work: Work, error: Refused | Unsuitable) -> Refusals | Exception:
        if isinstance(error, Unsuitable):
            # A partition is missing when the day was archived and its table dropped: when the chunks come again, it is made again.
            self._on_missing_partition()
            _log.warning("chunks cannot be stored now; their executor keeps them", error=error.message)
            return error
        _log.warning("chunks refused by the database", error=error.message, requests=1)
        return {chunk.place: f"cannot be stored: {error.message}" for chunk in work.chunks}

    async def _write_with_retries(self, works: Sequence[Work]) -> dict[Place, str]:
        """Writes, and again after an outage or an unknown outcome: chunks and seals are idempotent."""
        for attempt in range(1, MAX_TRIES + 1):
            try:
                return await self._write(works)
            except (Refused, Unsuitable):
                raise
            except StoreError as error:
                wait = self._backoff.delay(attempt)
                if attempt == MAX_TRIES:
                    raise
                _log.warning("commit failed", attempt=attempt, error=error.message, next_try_seconds=round(wait, 3))
                await self._clock.sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def _write(self, works: Sequence[Work]) -> dict[Place, str]:
        new = [chunk for work in works for chunk in work.chunks]
        started = self._clock.monotonic()
        async with tx(self._pool) as t:
            await log_attempts.note(t, [note for work in works for note in work.notes])
            appended = await chunks.append(t, new)
            await t.notify(wake_payload(_runs(works)), channel=CHANNEL)
        _seconds.observe(self._clock.monotonic() - started)
        _count(new, appended)
        return {
            place: f"another chunk begins there and goes to {seq_to}; send the one of the first time again"
            for place, seq_to in appended.different.items()
        }


def _runs(works: Sequence[Work]) -> set[int]:
    return {chunk.run_id for work in works for chunk in work.chunks} | {
        note.run_id for work in works for note in work.notes
    }


def _count(new: Sequence[NewChunk], appended: chunks.Appended) -> None:
    _chunks.labels("stored").inc(appended.new)
    _chunks.labels("refused").inc(len(appended.different))
    _chunks.labels("duplicate").inc(len(new) - appended.new - len(appended.different))
    _lines.inc(sum(chunk.line_count for chunk in new))
    _raw.inc(sum(chunk.raw_bytes for chunk in new))
    _data.inc(sum(len(chunk.data) for chunk in new))
