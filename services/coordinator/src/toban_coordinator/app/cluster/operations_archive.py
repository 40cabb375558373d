"""What an operator does about the archive of logs: a pass now, and a check of a day. A log-archiver does it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from toban_coordinator.ports.archivers import ArchiveCalls, ArchiveCheck
from toban_coordinator.store.cluster import audit
from toban_domain.errors import ErrorCode, TobanError
from toban_store.pool import Pool
from toban_store.tx import tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOperations:
    """Works from any coordinator."""

    pool: Pool
    archivers: ArchiveCalls

    async def run(self, *, reason: str, actor: str) -> None:
        """A pass begins; the audit has it also when it fails.

        Raises RESOURCE_INVALID_STATE without an object store, UNAVAILABLE without a log-archiver.
        """
        await self._note(actor, "run_archive", "archive", reason)
        await self.archivers.begin_pass()

    async def verify(self, log_day: str, *, cursor: str, reason: str, actor: str) -> ArchiveCheck:
        """The next objects of a day. Raises INVALID_ARGUMENT, and as `run`."""
        # The audit keeps its target for good.
        day, after = day_of(log_day).isoformat(), _number(cursor)
        await self._note(actor, "verify_archive", f"archive of {day}", reason)
        return await self.archivers.verify(day, after=after)

    async def _note(self, actor: str, action: str, target: str, reason: str) -> None:
        # Committed before the call: PostgreSQL ends a transaction that waits for a log-archiver, and what was asked for would have no row.
        async with tx(self.pool) as t:
            await audit.note(t, actor, action, target, reason)


def day_of(log_day: str) -> date:
    """Raises INVALID_ARGUMENT."""
    try:
        return date.fromisoformat(log_day)
    except ValueError:
        message = f"log_day {log_day[:40]!r} is no date: write the day as YYYY-MM-DD"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message) from None


def _number(cursor: str) -> int:
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, "cursor is none of an earlier part of this check: begin without one"
        )
    return int(cursor)
