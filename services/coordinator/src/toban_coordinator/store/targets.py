"""What a person's rules decide by: the job, its labels and the scope of jobs, runs, schedules and triggers."""

from __future__ import annotations

from collections.abc import Sequence

from toban_domain.access import Target
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)
_STATEMENTS = {
    "job": _sql.of_jobs,
    "job_uses": _sql.of_job_uses,
    "run": _sql.of_runs,
    "schedule": _sql.of_schedules,
    "ledger": _sql.of_ledgers,
    "trigger": _sql.of_triggers,
}


async def find(t: Tx, kind: str, keys: Sequence[str]) -> dict[str, Target]:
    """By name (for runs: by id as text); what does not exist is left out. `kind` is job, run, schedule, trigger, ledger for schedules that
    have or had a name, by their ids, or job_uses for jobs with the scopes of their schedules and live runs."""
    rows = await t.fetch_all(_STATEMENTS[kind], {"keys": list(keys)}) if keys else []
    return {
        row["key"]: Target(job=row["job"], labels=row["labels"], scope=row["scope"], scope_id=row["scope_id"])
        for row in rows
    }
