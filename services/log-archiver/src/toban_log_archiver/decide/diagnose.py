"""Findings of `toban doctor` about logs: small functions from facts to findings, one for each check."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from toban_domain.finding import Finding
from toban_log_archiver.decide.database_budget import FULL, WARN

BACKLOG_WARNING, BACKLOG_ERROR = 1, 3
"""Days beyond their retention that still have chunks in no verified object. A pass a minute leaves none but of jobs that still run."""
_DATABASE = "schema logs"


def unreachable(why: str) -> Finding:
    """PostgreSQL does not answer, so nothing else is known."""
    return Finding(
        name="log-database",
        subject=_DATABASE,
        value="no answer",
        status="error",
        message=f"the log-archiver cannot read its database: {why}",
        remedy="see whether PostgreSQL runs and SCHEDULER_DATABASE_URL of the log-archiver is right; until then output waits in the executors",
    )


def too_slow(why: str) -> Finding:
    """PostgreSQL does not answer in time, so nothing else is known."""
    return Finding(
        name="log-database",
        subject=_DATABASE,
        value="slow",
        status="warning",
        message=f"a query of the log-archiver took too long: {why}",
        remedy="see what keeps PostgreSQL busy or locks schema logs (pg_stat_activity, pg_locks), and ask again",
    )


def migrations(*, pending: Sequence[str], changed: Sequence[str], newer: Sequence[str], applied: int) -> Finding:
    """Whether schema logs is the one that this release of the log-archiver expects."""
    found = Finding(name="log-migrations", subject=_DATABASE, value=f"{applied} applied")
    if pending or changed:
        return Finding(
            name=found.name,
            subject=_DATABASE,
            value=", ".join([*pending, *changed]),
            status="error",
            message="is not applied, or not as this release has it" if pending else "was changed after it was applied",
            remedy="run `python -m toban_store.migrate up` with this release",
        )
    if newer:
        return Finding(
            name=found.name,
            subject=_DATABASE,
            value=", ".join(newer),
            status="warning",
            message="is applied and unknown to this log-archiver, which is older than the schema",
            remedy="upgrade it to the release that migrated the database",
        )
    return found


def partitions(missing: Sequence[date]) -> Finding:
    """Day partitions of today and the next two days."""
    if not missing:
        return Finding(name="log-partitions", subject=_DATABASE, value="made ahead")
    return Finding(
        name="log-partitions",
        subject=_DATABASE,
        value=", ".join(map(str, missing)),
        status="error",
        message="partitions of these days are missing",
        remedy="log-archivers make them every ten minutes and when a line needs one: their logs say why they do not. "
        "`SELECT logs.ensure_partitions(current_date, current_date + 7)` makes them",
    )


def settings(*, received: bool) -> Finding:
    """Whether the settings of a coordinator were received."""
    if received:
        return Finding(name="log-settings", subject="log-archiver", value="known")
    return Finding(
        name="log-settings",
        subject="log-archiver",
        value="defaults",
        status="warning",
        message="it has received no settings from a coordinator, so it archives nothing",
        remedy="see that SCHEDULER_COORDINATORS of the log-archiver is right, and that a coordinator runs",
    )


def bucket(*, configured: bool, uri: str, problem: str, last_error: str) -> Finding:
    """Whether the object store answers, and how the last pass ended."""
    if not configured:
        return Finding(
            name="log-archive",
            subject="object store",
            value="not configured",
            status="warning",
            message="output stays in PostgreSQL for ever",
            remedy="set SCHEDULER_S3_BUCKET and what it needs on every log-archiver (docs/logs.md)",
        )
    if not problem and not last_error:
        return Finding(name="log-archive", subject=uri, value="reachable")
    return Finding(
        name="log-archive",
        subject=uri,
        value="not reachable" if problem else "the last pass failed",
        status="error" if problem else "warning",
        message=problem or last_error,
        remedy='docs/logs.md, "When the object store is down"; nothing is lost meanwhile, archived output cannot be read',
    )


def backlog(late: Sequence[date], *, configured: bool) -> Finding:
    """Days that should be in the archive and are not, the oldest first."""
    if len(late) < BACKLOG_WARNING or not configured:
        return Finding(name="log-backlog", subject=_DATABASE, value="none" if not late else f"{len(late)} days")
    return Finding(
        name="log-backlog",
        subject=_DATABASE,
        value=f"{len(late)} days, from {late[0]} on",
        status="error" if len(late) >= BACKLOG_ERROR else "warning",
        message="days older than log_retention_days_db are not in the archive",
        remedy="`toban archive run` shows what holds them back: the object store, or attempts that have not ended",
    )


def budget(*, used: float, budget_text: str) -> Finding:
    """How much of log_budget_db_gb is used."""
    value = f"{used:.0%} of {budget_text}"
    if used < WARN:
        return Finding(name="log-budget", subject=_DATABASE, value=value)
    full = used >= FULL
    return Finding(
        name="log-budget",
        subject=_DATABASE,
        value=value,
        status="error" if full else "warning",
        message="new output is left out, and counted" if full else "from 100 % on new output is left out, and counted",
        remedy="see that the archive works; give the database more disk and raise log_budget_db_gb, or lower log_retention_days_db",
    )
