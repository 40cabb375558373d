"""The steps of archiving one pack of chunks: plan, put, read back, write the manifest. Each may be the last one before a crash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.decide import tlog
from toban_log_archiver.ports.object_store import Digest, ObjectStore
from toban_log_archiver.store import archive, archive_reads
from toban_log_archiver.store.archive import FrameRow, NewObject
from toban_log_archiver.store.archive_lease import archive_tx
from toban_log_archiver.store.archive_reads import ChunkFacts, ObjectRow
from toban_observability import metrics
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock
from toban_store.pool import Pool

READ_BYTES = 4 * 1024 * 1024
"""Frames that are fetched from the database at once."""
READ_CHUNKS = 500
PUT_TRIES = 3

_objects = metrics.counter("toban_archive_objects_total", "Objects archived and verified.")
_bytes = metrics.counter("toban_archive_bytes_total", "Bytes of objects archived and verified.")
_chunks = metrics.counter("toban_archive_chunks_total", "Chunks archived and verified.")
_lines = metrics.counter("toban_archive_lines_total", "Log lines archived and verified.")


class ObjectDiffers(TobanError):
    """The object of that name does not hold what its name says."""

    def __init__(self, uri: str, what: str) -> None:
        super().__init__(
            ErrorCode.CONFLICT,
            f"{uri} is not what was archived ({what}): its lines stay in the database; remove the object, then it is written again",
        )


class ManifestDiffers(TobanError):
    """The database does not hold, or holds already as archived, what an object has: nothing was written."""

    def __init__(self, key: str, counted: int, wanted: int) -> None:
        super().__init__(
            ErrorCode.CONFLICT,
            f"{key} has {wanted} chunks, of which {counted} are in the database and not archived",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDeps:
    """What the steps work with. `before_step` gets the name of each step right before it."""

    pool: Pool
    store: ObjectStore
    clock: Clock
    before_step: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """An object that counts now."""

    log_day: date
    key: str
    tokens: int
    chunks: int
    lines: int
    bytes: int


class Steps:
    """As the archiver of `epoch`. Every write raises FencedOut once another one has the lease."""

    def __init__(self, deps: StepDeps, epoch: int) -> None:
        self._deps = deps
        self._epoch = epoch
        self._backoff = Backoff(base=0.1, cap=2.0)

    async def archive(self, log_day: date, chunks: Sequence[ChunkFacts]) -> Archived | None:
        """From rows to a verified object; None when that very object is verified already."""
        self._deps.before_step("read")
        body, frames = await self._built(log_day, chunks)
        digest = Digest(len(body), hashlib.sha256(body).digest())
        new = NewObject(
            key=tlog.key_of(log_day, digest.sha256),
            log_day=log_day,
            sha256=digest.sha256,
            bytes=digest.length,
            token_count=len({(frame.run_id, frame.token) for frame in frames}),
            chunk_count=len(frames),
            line_count=sum(frame.line_count for frame in frames),
        )
        self._deps.before_step("plan")
        async with archive_tx(self._deps.pool, self._epoch) as a:
            planned = await archive.plan(a, new)
        if planned is None:
            return None
        self._deps.before_step("put")
        await self._put(new.key, body)
        del body
        self._deps.before_step("stored")
        async with archive_tx(self._deps.pool, self._epoch) as a:
            await archive.stored(a, planned.id)
        self._deps.before_step("read_back")
        self._compare(new.key, digest, await self._deps.store.digest(new.key))
        await self._cover(planned.id, new.key, log_day, frames)
        return self._counted(new)

    async def resume(self, row: ObjectRow) -> Archived | None:
        """Finishes an object that an earlier pass began; None when it was never put, or is of no use: its chunks are packed again."""
        self._deps.before_step("look")
        found = await self._deps.store.digest(row.key)
        if found is None:
            await self._forget(row)
            return None
        self._compare(row.key, Digest(row.bytes, row.sha256), found)
        frames = await self._frames(row)
        self._deps.before_step("stored")
        async with archive_tx(self._deps.pool, self._epoch) as a:
            await archive.stored(a, row.id)
        try:
            await self._cover(row.id, row.key, row.log_day, frames)
        except ManifestDiffers:
            # Its chunks were put into another object since: this one stays in the bucket, unused.
            await self._forget(row)
            return None
        return self._counted(
            NewObject(
                key=row.key,
                log_day=row.log_day,
                sha256=row.sha256,
                bytes=row.bytes,
                token_count=len({(frame.run_id, frame.token) for frame in frames}),
                chunk_count=len(frames),
                line_count=sum(frame.line_count for frame in frames),
            )
        )

    async def _built(self, log_day: date, chunks: Sequence[ChunkFacts]) -> tuple[bytes, list[FrameRow]]:
        parts: list[bytes] = []
        for batch in _batches(chunks):
            async with archive_reads.long_query_tx(self._deps.pool) as t:
                data = await archive_reads.data(t, log_day, batch)
            if [len(one) for one in data] != [chunk.byte_length for chunk in batch]:
                raise ManifestDiffers("a pack", len(data), len(batch))
            parts += data
        frames, offset = [], 0
        for chunk, part in zip(chunks, parts, strict=True):
            frames.append(_frame(chunk, offset, hashlib.sha256(part).digest()))
            offset += len(part)
        index = tlog.Index(log_day=log_day, frames=[_indexed(frame) for frame in frames])
        return b"".join([*parts, tlog.trailer(index)]), frames

    async def _put(self, key: str, body: bytes) -> None:
        """Whichever process put it: what is there is read back and compared."""
        for attempt in range(1, PUT_TRIES + 1):
            try:
                await self._deps.store.put_new(key, body)
            except TobanError as error:
                # 409: another write of this name is under way.
                if error.code is not ErrorCode.CONFLICT or attempt == PUT_TRIES:
                    raise
                await self._deps.clock.sleep(self._backoff.delay(attempt))
            else:
                return

    def _compare(self, key: str, wanted: Digest, found: Digest | None) -> None:
        if found == wanted:
            return
        uri = self._deps.store.uri(key)
        if found is None:
            raise TobanError(ErrorCode.UNAVAILABLE, f"{uri} was put and is not there when it is read back")
        what = f"{found.length} bytes" if found.length != wanted.length else f"SHA-256 {found.sha256.hex()}"
        raise ObjectDiffers(uri, what)

    async def _cover(self, object_id: int, key: str, log_day: date, frames: Sequence[FrameRow]) -> None:
        self._deps.before_step("manifest")
        async with archive_tx(self._deps.pool, self._epoch) as a:
            covered = await archive.cover(a, object_id, log_day, frames)
            if covered != len(frames) or not await archive.verified(a, object_id):
                raise ManifestDiffers(key, covered, len(frames))
            self._deps.before_step("commit")
        self._deps.before_step("committed")

    async def _forget(self, row: ObjectRow) -> None:
        self._deps.before_step("forget")
        async with archive_tx(self._deps.pool, self._epoch) as a:
            await archive.forget(a, row.id)

    async def _frames(self, row: ObjectRow) -> list[FrameRow]:
        try:
            footer = await self._deps.store.read(row.key, row.bytes - tlog.FOOTER_BYTES, tlog.FOOTER_BYTES)
            length = tlog.index_length(footer)
            body = await self._deps.store.read(row.key, row.bytes - tlog.FOOTER_BYTES - length, length)
            index = tlog.read_index(body, footer)
        except tlog.TlogInvalid as error:
            raise ObjectDiffers(self._deps.store.uri(row.key), str(error)) from None
        names = FrameRow.__dataclass_fields__
        return [FrameRow(**{name: getattr(frame, name) for name in names}) for frame in index.frames]

    @staticmethod
    def _counted(new: NewObject) -> Archived:
        _objects.inc()
        _bytes.inc(new.bytes)
        _chunks.inc(new.chunk_count)
        _lines.inc(new.line_count)
        return Archived(
            log_day=new.log_day,
            key=new.key,
            tokens=new.token_count,
            chunks=new.chunk_count,
            lines=new.line_count,
            bytes=new.bytes,
        )


def _batches(chunks: Sequence[ChunkFacts]) -> list[list[ChunkFacts]]:
    batches: list[list[ChunkFacts]] = []
    size = 0
    for chunk in chunks:
        size += chunk.byte_length
        if not batches or size > READ_BYTES or len(batches[-1]) >= READ_CHUNKS:
            batches.append([])
            size = chunk.byte_length
        batches[-1].append(chunk)
    return batches


def _frame(chunk: ChunkFacts, offset: int, digest: bytes) -> FrameRow:
    return FrameRow(
        run_id=chunk.run_id,
        token=chunk.token,
        stream=chunk.stream,
        seq_from=chunk.seq_from,
        seq_to=chunk.seq_to,
        line_count=chunk.line_count,
        byte_offset=offset,
        byte_length=chunk.byte_length,
        sha256=digest,
    )


def _indexed(frame: FrameRow) -> tlog.Frame:
    return tlog.Frame(**{name: getattr(frame, name) for name in tlog.Frame.__dataclass_fields__})
