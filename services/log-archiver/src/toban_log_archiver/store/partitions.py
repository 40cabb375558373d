"""Schema `logs` itself: its day partitions, which are made here, and its migrations."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from toban_store.migrate import MigrationState, compare
from toban_store.queries import load
from toban_store.tx import Tx

_Q = load(__name__)


async def present(t: Tx, days: Collection[date]) -> tuple[date, set[date]]:
    """PostgreSQL's day in UTC, and those of `days` that have their partitions."""
    row = await t.fetch_one(_Q.state, {"days": list(days)})
    if row is None:
        raise AssertionError("a SELECT without FROM has one row")
    return row["today"], set(row["present"])


async def ensure(t: Tx, *, first: date, last: date) -> int:
    """Makes the missing partitions of [first, last]; how many tables were made."""
    row = await t.fetch_one(_Q.ensure, {"first": first, "last": last})
    return int(row["made"]) if row else 0


async def migrated(t: Tx) -> bool:
    """Whether the schema is there at all."""
    row = await t.fetch_one(_Q.migrated)
    return bool(row and row["migrated"])


async def migrations(t: Tx) -> list[MigrationState]:
    """Every migration of this code and of the database. Raises StoreError."""
    rows = await t.fetch_all(_Q.applied)
    return compare({(row["schema"], row["version"]): row["checksum"] for row in rows})
