"""Loop `archive_watch`: how much is in the database, how much should be in the archive, and what health says of both."""

from __future__ import annotations

from toban_log_archiver.loops.archive import Archiver
from toban_log_archiver.loops.settings import SettingsWatch
from toban_observability import metrics
from toban_observability.health import Check
from toban_store.logs import archive_reads
from toban_store.pool import Pool

TICK_SECONDS = 30.0
# From this part of the budget on health warns.
ALARM = 0.8
GB = 1000**3

_backlog = metrics.gauge(
    "toban_archive_backlog_days", "Days older than log_retention_days_db whose chunks are in the database."
)
_bytes = metrics.gauge("toban_log_database_bytes", "Size of schema logs in PostgreSQL.")
_share = metrics.gauge("toban_log_budget_ratio", "That size as a part of log_budget_db_gb; 1 = all of it.")


class ArchiveWatch:
    """`run_once` for a Loop; `check` is for /healthz. `archiver` is None without an object store."""

    def __init__(self, *, pool: Pool, settings: SettingsWatch, archiver: Archiver | None) -> None:
        self._pool = pool
        self._settings = settings
        self._archiver = archiver
        self._days = 0
        self._used = 0.0

    async def run_once(self) -> None:
        """Looks once."""
        settings = self._settings.known
        async with archive_reads.patient(self._pool) as t:
            found = await archive_reads.days(t, retention_days=settings.whole("log_retention_days_db"))
            size = await archive_reads.volume(t)
        self._days = sum(due for _, due in found)
        self._used = size / (settings["log_budget_db_gb"] * GB)
        _backlog.set(self._days)
        _bytes.set(size)
        _share.set(self._used)

    def check(self) -> Check:
        """A failed pass, a budget that is nearly used up, and lines that go nowhere are warnings."""
        value = {"backlog_days": self._days, "budget_used": round(self._used, 4)}
        problem = self._problem()
        return Check("warning", {**value, "problem": problem}) if problem else Check("ok", value)

    def _problem(self) -> str:
        if self._archiver is not None and self._archiver.problem:
            return self._archiver.problem
        if self._used >= ALARM:
            return (
                f"schema logs has {self._used:.0%} of log_budget_db_gb: see that the archive works, or raise the budget"
            )
        return ""
