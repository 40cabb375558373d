"""Where the output of each day is, and how the last pass of the archive went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from toban_domain.settings import Settings
from toban_log_archiver.decide.database_budget import GB
from toban_log_archiver.store import archive_expiry, archive_lease, archive_reads
from toban_log_archiver.store.archive_lease import LeaseRow
from toban_log_archiver.store.archive_reads import DayArchived, DayStored, Volume
from toban_store.pool import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class DayStatus:
    """What of a day is in the database and in the archive; `is_due`: it is older than its retention in the database."""

    log_day: date
    stored: DayStored | None
    archived: DayArchived | None
    is_due: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStatus:
    """Days are the oldest first; `late` are due days with chunks in no verified object. `expired_waiting` objects still have to be deleted."""

    days: Sequence[DayStatus]
    late: Sequence[date]
    retention_days: int
    archive_retention_days: int
    budget_bytes: int
    volume: Volume
    lease: LeaseRow
    expired_waiting: int


async def archive_status(pool: Pool, settings: Settings) -> ArchiveStatus:
    """As the database has it now. Raises StoreError."""
    retention = settings.whole("log_retention_days_db")
    async with archive_reads.long_query_tx(pool) as t:
        days = await archive_reads.days(t, retention_days=retention)
        stored = {day: await archive_reads.stored_day(t, day) for day, _ in days}
        archived = {one.log_day: one for one in await archive_reads.archived_days(t)}
        volume = await archive_reads.volume(t)
        waiting = await archive_expiry.waiting_count(t)
        lease = await archive_lease.read(t)
    due = {day for day, is_due in days if is_due}
    known = sorted({day for day in stored if stored[day].chunks} | set(archived))
    return ArchiveStatus(
        days=[
            DayStatus(log_day=day, stored=stored.get(day), archived=archived.get(day), is_due=day in due)
            for day in known
        ],
        late=sorted(day for day in due if stored[day].open_chunks),
        retention_days=retention,
        archive_retention_days=settings.whole("log_retention_days_archive"),
        budget_bytes=int(settings["log_budget_db_gb"] * GB),
        volume=volume,
        lease=lease,
        expired_waiting=waiting,
    )
