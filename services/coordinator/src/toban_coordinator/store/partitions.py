"""Day partitions of history, attempts and events. DDL by date under an advisory lock: idempotent, so it needs no fence."""

from __future__ import annotations

from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


async def ensure(t: Tx) -> int:
    """Makes the partitions of the next days; answers how many were missing."""
    row = await t.fetch_one(_sql.ensure)
    return int(row["made"]) if row else 0
