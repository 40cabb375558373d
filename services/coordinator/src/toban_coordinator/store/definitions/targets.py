"""What a person's rules decide by: the job, its labels and the scope of jobs, runs, schedules and triggers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined:
    """What a stored definition already reaches beyond its job."""

    labels: Mapping[str, str]
    webhooks: frozenset[str]
    priority: int


async def definitions(t: Tx, names: Sequence[str]) -> dict[str, Defined]:
    """By the name of the job; what does not exist is left out."""
    rows = await t.fetch_all(_sql.definitions, {"names": list(names)})
    return {
        row["name"]: Defined(labels=row["labels"], webhooks=frozenset(row["webhooks"]), priority=row["priority"])
        for row in rows
    }


async def opening_labels(t: Tx, labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """Those of these labels by which triggers start, or which webhooks or groups of executors are for."""
    rows = await t.fetch_all(_sql.opening_labels, {"keys": list(labels), "values": list(labels.values())})
    return [(row["key"], row["value"]) for row in rows]


async def closed_webhooks(t: Tx, names: Collection[str], job: str, labels: Mapping[str, str]) -> list[str]:
    """Those of these webhooks whose own filter has neither the name nor labels of this job."""
    params = {"names": sorted(names), "job": job, "labels": json.dumps(dict(labels))}
    return [row["name"] for row in await t.fetch_all(_sql.closed_webhooks, params)]


async def kept_for(t: Tx, job: str) -> list[str]:
    """The secrets, webhooks and triggers that name this job, in words."""
    return [row["what"] for row in await t.fetch_all(_sql.kept_for, {"job": job})]
