"""Reads the facts for the checks of `toban doctor` about logs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.finding import Finding
from toban_log_archiver.app.archive_pass import Archiver
from toban_log_archiver.decide import diagnose as checks
from toban_log_archiver.decide.database_budget import GB
from toban_log_archiver.ports.object_store import ObjectStore
from toban_log_archiver.store import archive_lease, archive_reads, partitions
from toban_runtime.settings_watch import SettingsWatch
from toban_store import role_check
from toban_store.migrate import MigrationState
from toban_store.pool import Pool
from toban_store.tx import Tx

SCHEMA = "logs/"
DAYS_AHEAD = 2


async def diagnose(
    *, pool: Pool, settings: SettingsWatch, store: ObjectStore | None, archiver: Archiver | None
) -> list[Finding]:
    """Every finding; a database or an object store that does not answer is one too. Raises nothing."""
    found = [checks.settings(received=settings.received)]
    last_error = archiver.problem if archiver else ""
    try:
        async with archive_reads.long_query_tx(pool) as t:
            found.append(_migrations(await partitions.migrations(t)))
            found.append(role_check.finding("log-database-role", await role_check.read(t, schema="logs")))
            found.append(checks.partitions(await _missing(t)))
            found.append(checks.backlog(await _late(t, settings), configured=store is not None))
            budget_gb = settings.known.whole("log_budget_db_gb")
            used = (await archive_reads.volume(t)).chunks / (budget_gb * GB)
            found.append(checks.budget(used=used, budget_text=f"{budget_gb:,} GB"))
            last_error = (await archive_lease.read(t)).last_error or last_error
    except TobanError as error:
        late = error.code is ErrorCode.DEADLINE_EXCEEDED
        found.append(checks.too_slow(error.message) if late else checks.unreachable(error.message))
    problem = await store.problem() if store else ""
    uri = store.uri("").rstrip("/") if store else ""
    found.append(checks.bucket(configured=store is not None, uri=uri, problem=problem, last_error=last_error))
    return found


def _migrations(states: Sequence[MigrationState]) -> Finding:
    def labels(kind: str) -> list[str]:
        return [one.label for one in states if one.state == kind and one.label.startswith(SCHEMA)]

    return checks.migrations(
        pending=labels("pending"), changed=labels("changed"), newer=labels("newer"), applied=len(labels("applied"))
    )


async def _missing(t: Tx) -> list[date]:
    today, _ = await partitions.present(t, [])
    wanted = [today + timedelta(days=ahead) for ahead in range(DAYS_AHEAD + 1)]
    _, present = await partitions.present(t, wanted)
    return [day for day in wanted if day not in present]


async def _late(t: Tx, settings: SettingsWatch) -> list[date]:
    retention = settings.known.whole("log_retention_days_db")
    late = []
    for day, due in await archive_reads.days(t, retention_days=retention):
        if due and await archive_reads.has_open(t, day):
            late.append(day)
    return late
