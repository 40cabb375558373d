"""Where the migrations stand, as a log-archiver sees them."""

from __future__ import annotations

from toban_store.migrate import MigrationState, compare
from toban_store.queries import load
from toban_store.tx import Tx

_Q = load(__name__)


async def migrations(t: Tx) -> list[MigrationState]:
    """Every migration of this code and of the database. Raises StoreError."""
    rows = await t.fetch_all(_Q.applied)
    return compare({(row["schema"], row["version"]): row["checksum"] for row in rows})
