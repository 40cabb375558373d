"""LogArchive: translates what people ask of the archive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import asdict
from datetime import date
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.version import VERSION
from toban_log_archiver.app.archive_pass import Archiver
from toban_log_archiver.app.archive_status import DayStatus, archive_status
from toban_log_archiver.app.archive_verification import VerifiedObject, verify_objects
from toban_log_archiver.app.diagnose import diagnose
from toban_log_archiver.app.pass_report import PassEvent
from toban_log_archiver.ports.object_store import ObjectStore
from toban_proto.v1 import logs_pb2 as pb
from toban_proto.v1.logs_pb2_grpc import LogArchiveServicer, add_LogArchiveServicer_to_server
from toban_runtime.settings_watch import SettingsWatch
from toban_store.pool import Pool
from toban_transport.convert import timestamp_to_pb

add_to_server = add_LogArchiveServicer_to_server
"""What a server's `add` takes beside a LogArchive."""


class LogArchive(LogArchiveServicer):
    """Called by admin-cli and coordinators. Without an object store (`store` and `archiver` are None) only Status and Diagnose answer.

    `wake` begins a pass of the loop.
    """

    def __init__(
        self,
        *,
        pool: Pool,
        settings: SettingsWatch,
        store: ObjectStore | None,
        archiver: Archiver | None,
        wake: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._store = store
        self._archiver = archiver
        self._wake = wake

    async def Status(self, _request: pb.ArchiveStatusRequest, _context: Any) -> pb.ArchiveStatusResponse:
        """See archive_status."""
        found = await archive_status(self._pool, self._settings.known)
        lease = found.lease
        return pb.ArchiveStatusResponse(
            days=[_day(day) for day in found.days],
            retention_days=found.retention_days,
            oldest_not_archived=found.late[0].isoformat() if found.late else "",
            database_bytes=found.volume.chunks,
            bookkeeping_bytes=found.volume.bookkeeping,
            budget_bytes=found.budget_bytes,
            last_pass_at=timestamp_to_pb(lease.last_pass_at) if lease.last_pass_at else None,
            last_pass=lease.last_pass,
            last_error=lease.last_error or (self._archiver.problem if self._archiver else ""),
            holder=lease.holder if lease.held else "",
            bucket=self._store.uri("").rstrip("/") if self._store else "",
            archive_retention_days=found.archive_retention_days,
            expired_waiting=found.expired_waiting,
        )

    async def RunArchive(self, request: pb.RunArchiveRequest, _context: Any) -> AsyncIterator[pb.RunArchiveResponse]:
        """A pass now, or with dry_run what it would do. A caller that leaves ends the pass; the next one finishes what it had begun."""
        if self._archiver is None:
            raise _no_archive()
        if request.background:
            self._wake()
            return
        events = self._archiver.plan() if request.dry_run else self._archiver.events()
        async with aclosing(events):
            async for event in events:
                yield _event(event)

    async def Verify(self, request: pb.VerifyArchiveRequest, _context: Any) -> AsyncIterator[pb.VerifyArchiveResponse]:
        """See verify_objects."""
        if self._store is None:
            raise _no_archive()
        day = _date(request.log_day) if request.log_day else None
        async with aclosing(verify_objects(self._pool, self._store, log_day=day, after=request.after)) as objects:
            async for one in objects:
                yield _verified(one)

    async def Diagnose(self, _request: pb.DiagnoseLogsRequest, _context: Any) -> pb.DiagnoseLogsResponse:
        """See diagnose."""
        found = await diagnose(pool=self._pool, settings=self._settings, store=self._store, archiver=self._archiver)
        return pb.DiagnoseLogsResponse(version=VERSION, checks=[pb.LogCheck(**asdict(one)) for one in found])


def _day(day: DayStatus) -> pb.ArchiveDay:
    answer = pb.ArchiveDay(log_day=day.log_day.isoformat(), due=day.is_due)
    if (stored := day.stored) is not None:
        answer.tokens, answer.chunks, answer.bytes = stored.tokens, stored.chunks, stored.bytes
        answer.open_chunks = stored.open_chunks
    if (archived := day.archived) is not None:
        answer.archived_objects, answer.archived_tokens = archived.objects, archived.tokens
        answer.archived_chunks, answer.archived_bytes = archived.chunks, archived.bytes
        answer.expired_objects, answer.expired_bytes = archived.expired_objects, archived.expired_bytes
    return answer


def _event(event: PassEvent) -> pb.RunArchiveResponse:
    return pb.RunArchiveResponse(
        action=event.action,
        log_day=event.log_day.isoformat() if event.log_day else "",
        key=event.key,
        tokens=event.tokens,
        chunks=event.chunks,
        lines=event.lines,
        bytes=event.bytes,
        message=event.message,
    )


def _verified(one: VerifiedObject) -> pb.VerifyArchiveResponse:
    return pb.VerifyArchiveResponse(
        log_day=one.row.log_day.isoformat(),
        key=one.row.key,
        chunks=one.chunks,
        bytes=one.row.bytes,
        ok=not one.problem,
        problem=one.problem,
        number=one.row.id,
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
