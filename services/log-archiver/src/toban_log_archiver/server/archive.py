"""LogArchive: what people see of the archive, and a pass or a check when they ask for one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import date
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.version import VERSION
from toban_log_archiver.decide.database_budget import GB
from toban_log_archiver.loops.archive import Archiver
from toban_log_archiver.loops.pass_report import Did
from toban_log_archiver.ports.object_store import ObjectStore
from toban_log_archiver.server import diagnose
from toban_log_archiver.store import archive_expiry, archive_lease, archive_reads
from toban_log_archiver.store.archive import FrameRow
from toban_log_archiver.store.archive_reads import DayArchived, DayStored, ObjectRow
from toban_proto.v1 import logs_pb2 as pb
from toban_proto.v1.logs_pb2_grpc import LogArchiveServicer, add_LogArchiveServicer_to_server
from toban_runtime.settings_watch import SettingsWatch
from toban_store.pool import Pool
from toban_store.tx import autocommit
from toban_transport.convert import timestamp_to_pb

add_to_server = add_LogArchiveServicer_to_server
"""What a server's `add` takes beside a LogArchive."""

OBJECTS_PAGE = 100


class LogArchive(LogArchiveServicer):
    """Called by admin-web and admin-cli. Without an object store (`store` and `archiver` are None) only Status answers."""

    def __init__(
        self, *, pool: Pool, settings: SettingsWatch, store: ObjectStore | None, archiver: Archiver | None
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._store = store
        self._archiver = archiver

    async def Status(self, _request: pb.ArchiveStatusRequest, _context: Any) -> pb.ArchiveStatusResponse:
        """Day by day what is where, and how the last pass went."""
        settings = self._settings.known
        retention = settings.whole("log_retention_days_db")
        async with archive_reads.patient(self._pool) as t:
            days = await archive_reads.days(t, retention_days=retention)
            stored = {day: await archive_reads.stored_day(t, day) for day, _ in days}
            archived = {one.log_day: one for one in await archive_reads.archived_days(t)}
            size = await archive_reads.volume(t)
            waiting = await archive_expiry.waiting_count(t)
            lease = await archive_lease.look(t)
        due = {day for day, is_due in days if is_due}
        late = sorted(day for day in due if stored[day].open_chunks)
        known = sorted({day for day in stored if stored[day].chunks} | set(archived))
        return pb.ArchiveStatusResponse(
            days=[_day(day, stored.get(day), archived.get(day), due=day in due) for day in known],
            retention_days=retention,
            oldest_not_archived=late[0].isoformat() if late else "",
            database_bytes=size.chunks,
            bookkeeping_bytes=size.bookkeeping,
            budget_bytes=int(settings["log_budget_db_gb"] * GB),
            last_pass_at=timestamp_to_pb(lease.last_pass_at) if lease.last_pass_at else None,
            last_pass=lease.last_pass,
            last_error=lease.last_error or (self._archiver.problem if self._archiver else ""),
            holder=lease.holder if lease.held else "",
            bucket=self._store.uri("").rstrip("/") if self._store else "",
            archive_retention_days=settings.whole("log_retention_days_archive"),
            expired_waiting=waiting,
        )

    async def RunArchive(self, request: pb.RunArchiveRequest, _context: Any) -> AsyncIterator[pb.RunArchiveResponse]:
        """A pass now, or what it would do. Leaving the stream ends the pass; what it had begun is finished by the next one."""
        if self._archiver is None:
            raise _no_archive()
        if request.dry_run:
            async for one in self._archiver.plan():
                yield _did(one)
            return
        queue: asyncio.Queue[Did | None] = asyncio.Queue()
        working = asyncio.ensure_future(self._archiver.work(queue.put_nowait))
        working.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (did := await queue.get()) is not None:
                yield _did(did)
            await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def Verify(self, request: pb.VerifyArchiveRequest, _context: Any) -> AsyncIterator[pb.VerifyArchiveResponse]:
        """Every object of a day, or of all days, against its manifest. An object that cannot be read is one with a problem."""
        if self._store is None:
            raise _no_archive()
        day = _date(request.log_day) if request.log_day else None
        after = 0
        while True:
            async with autocommit(self._pool) as t:
                page = await archive_reads.verified(t, log_day=day, after=after, size=OBJECTS_PAGE)
            for row in page:
                yield await self._verified(self._store, row)
            if len(page) < OBJECTS_PAGE:
                return
            after = page[-1].id

    async def Diagnose(self, _request: pb.DiagnoseLogsRequest, _context: Any) -> pb.DiagnoseLogsResponse:
        """What is wrong with the logs, as far as this log-archiver sees it. Raises nothing for what is wrong."""
        found = await diagnose.look(
            pool=self._pool, settings=self._settings, store=self._store, archiver=self._archiver
        )
        return pb.DiagnoseLogsResponse(version=VERSION, checks=[pb.LogCheck(**asdict(one)) for one in found])

    async def _verified(self, store: ObjectStore, row: ObjectRow) -> pb.VerifyArchiveResponse:
        async with archive_reads.patient(self._pool) as t:
            frames = await archive_reads.frames(t, row.id)
        try:
            problem = await _problem(store, row, frames)
        except TobanError as error:
            problem = error.message
        return pb.VerifyArchiveResponse(
            log_day=row.log_day.isoformat(),
            key=row.key,
            chunks=len(frames),
            bytes=row.bytes,
            ok=not problem,
            problem=problem,
        )


async def _problem(store: ObjectStore, row: ObjectRow, frames: list[FrameRow]) -> str:
    found = await store.digest(row.key)
    if found is None:
        return "the object is not there"
    if found.length != row.bytes:
        return f"it has {found.length} bytes; {row.bytes} were written"
    if found.sha256 != row.sha256:
        return f"its SHA-256 is {found.sha256.hex()}; what was written had {row.sha256.hex()}"
    body = await store.read(row.key, 0, row.bytes)
    wrong = await asyncio.to_thread(_wrong_frames, body, frames)
    return f"{wrong} of {len(frames)} chunks are not where the manifest says" if wrong else ""


def _wrong_frames(body: bytes, frames: list[FrameRow]) -> int:
    view = memoryview(body)
    return sum(
        hashlib.sha256(view[one.byte_offset : one.byte_offset + one.byte_length]).digest() != one.sha256
        for one in frames
    )


def _day(day: date, stored: DayStored | None, archived: DayArchived | None, *, due: bool) -> pb.ArchiveDay:
    answer = pb.ArchiveDay(log_day=day.isoformat(), due=due)
    if stored is not None:
        answer.tokens, answer.chunks, answer.bytes = stored.tokens, stored.chunks, stored.bytes
        answer.open_chunks = stored.open_chunks
    if archived is not None:
        answer.archived_objects, answer.archived_tokens = archived.objects, archived.tokens
        answer.archived_chunks, answer.archived_bytes = archived.chunks, archived.bytes
        answer.expired_objects, answer.expired_bytes = archived.expired_objects, archived.expired_bytes
    return answer


def _did(did: Did) -> pb.RunArchiveResponse:
    return pb.RunArchiveResponse(
        action=did.action,
        log_day=did.log_day.isoformat() if did.log_day else "",
        key=did.key,
        tokens=did.tokens,
        chunks=did.chunks,
        lines=did.lines,
        bytes=did.bytes,
        message=did.message,
    )


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"log_day {text!r} is no date: write YYYY-MM-DD") from None


def _no_archive() -> TobanError:
    return TobanError(
        ErrorCode.RESOURCE_INVALID_STATE,
        "this log-archiver has no object store: set SCHEDULER_S3_BUCKET and what it needs",
    )
