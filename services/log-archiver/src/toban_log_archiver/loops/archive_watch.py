"""Loop `archive_watch`: how much is in the database, how much should be in the archive, and what health reports of both."""

from __future__ import annotations

from toban_log_archiver.app.archive_pass import Archiver
from toban_log_archiver.decide.database_budget import GB, WARN, is_full
from toban_log_archiver.store import archive_reads
from toban_observability import metrics
from toban_observability.health import Check
from toban_observability.logs import get_logger
from toban_runtime.settings_watch import SettingsWatch
from toban_store.pool import Pool

TICK_SECONDS = 30.0

_log = get_logger(__name__)
_full = metrics.gauge("toban_log_budget_full", "1 while new output is dropped because log_budget_db_gb is used up.")
_backlog = metrics.gauge(
    "toban_archive_backlog_partitions",
    "Day partitions older than log_retention_days_db that still have chunks in PostgreSQL.",
)
_bytes = metrics.gauge("toban_log_database_bytes", "Size of job output in PostgreSQL, including indexes.")
_bookkeeping = metrics.gauge(
    "toban_log_bookkeeping_bytes",
    "Size of the log metadata in PostgreSQL (attempts, objects and manifests); not part of the budget.",
)
_share = metrics.gauge(
    "toban_log_budget_ratio", "Fraction of log_budget_db_gb that toban_log_database_bytes uses; 1 = used up."
)


class ArchiveWatch:
    """`run_once` for a Loop; `check` is for /healthz. `archiver` is None without an object store."""

    def __init__(self, *, pool: Pool, settings: SettingsWatch, archiver: Archiver | None) -> None:
        self._pool = pool
        self._settings = settings
        self._archiver = archiver
        self._days = 0
        self._used = 0.0
        self.is_full = False
        """The budget is used up: new output is left out."""

    async def run_once(self) -> None:
        """Reads sizes and due days once."""
        settings = self._settings.known
        async with archive_reads.long_query_tx(self._pool) as t:
            found = await archive_reads.days(t, retention_days=settings.whole("log_retention_days_db"))
            size = await archive_reads.volume(t)
        self._days = sum(due for _, due in found)
        self._used = size.chunks / (settings["log_budget_db_gb"] * GB)
        full = is_full(self._used, was_full=self.is_full)
        if full != self.is_full:
            _log.warning(
                "new output is left out" if full else "new output is stored again", budget_used=round(self._used, 4)
            )
        self.is_full = full
        _full.set(full)
        _backlog.set(self._days)
        _bytes.set(size.chunks)
        _bookkeeping.set(size.bookkeeping)
        _share.set(self._used)

    @property
    def budget_text(self) -> str:
        """What the budget is, for people."""
        return f"{self._settings.known.whole('log_budget_db_gb'):,} GB (log_budget_db_gb)"

    def check(self) -> Check:
        """A failed pass, a budget that is nearly used up, and dropped lines are warnings."""
        value = {"backlog_days": self._days, "budget_used": round(self._used, 4)}
        problem = self._problem()
        return Check("warning", {**value, "problem": problem}) if problem else Check("ok", value)

    def _problem(self) -> str:
        if self._archiver is not None and self._archiver.problem:
            return self._archiver.problem
        if self.is_full:
            return (
                f"output in the database has {self._used:.0%} of log_budget_db_gb: new output is left out, and counted; "
                "see that the archive works, or raise the budget"
            )
        if self._used >= WARN:
            return (
                f"output in the database has {self._used:.0%} of log_budget_db_gb: "
                "see that the archive works, or raise the budget"
            )
        return ""
