"""What `toban doctor` asks of PostgreSQL. Reads only; nothing here is for the hot paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toban_coordinator.store.cluster import cluster_stats, epoch_claims
from toban_store import queries, role_check
from toban_store.migrate import MigrationState, compare
from toban_store.role_check import RoleFacts
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
# Tables with a partition a day; ensure_partitions makes them ahead.
DAILY = ("runs_history", "job_attempts", "job_events", "events_history")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Rows of one diagnosis, named as the blocks of health_facts.sql; `standbys` by mode, as in cluster_stats."""

    server: Row
    standbys: Mapping[str, int]
    missing_partitions: Sequence[Row]
    leader: Row
    refused_epochs: Sequence[Row]
    coordinators: Sequence[Row]
    executors: Sequence[Row]
    executor_groups: Sequence[Row]
    isolated_jobs: Row
    work: Row
    role: RoleFacts


async def migrations(t: Tx) -> list[MigrationState]:
    """Where each migration stands."""
    applied = await t.fetch_all(_sql.migrations)
    return compare({(row["schema"], row["version"]): row["checksum"] for row in applied})


async def read(t: Tx) -> Read:
    """The rest; raises a StoreError when PostgreSQL does not answer, or lacks a table since a migration is missing."""
    return Read(
        server=_one(await t.fetch_one(_sql.server)),
        standbys=await cluster_stats.standbys(t),
        missing_partitions=await t.fetch_all(_sql.missing_partitions, {"parents": list(DAILY)}),
        leader=_one(await t.fetch_one(_sql.leader)),
        refused_epochs=await epoch_claims.refused(t),
        coordinators=await t.fetch_all(_sql.coordinators),
        executors=await t.fetch_all(_sql.executors),
        executor_groups=await t.fetch_all(_sql.executor_groups),
        isolated_jobs=_one(await t.fetch_one(_sql.isolated_jobs)),
        work=_one(await t.fetch_one(_sql.work)),
        role=await role_check.read(t, schema="scheduler"),
    )


def _one(row: Row | None) -> Row:
    assert row is not None
    return row
