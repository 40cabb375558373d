"""What pages and commands show of the cluster: executors, coordinators, who leads."""

from __future__ import annotations

from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
# A coordinator that was not seen for this long and was not stopped counts as lost, seconds.
LOST_AFTER_SECONDS = 5.0


async def executors(t: Tx, *, include_off: bool, worker_id: int = 0) -> list[Row]:
    """Executors by worker id; only that one when `worker_id` is given."""
    return await t.fetch_all(_sql.executors, {"include_off": include_off, "worker_id": worker_id})


async def leader(t: Tx) -> Row:
    """The leader row with its beat."""
    row = await t.fetch_one(_sql.leader)
    assert row is not None
    return row


async def coordinators(t: Tx) -> list[Row]:
    """Coordinators of the last day."""
    return await t.fetch_all(_sql.coordinators, {"lost_after": LOST_AFTER_SECONDS})


async def counts(t: Tx) -> tuple[int, int]:
    """(runs that wait, runs on executors)."""
    row = await t.fetch_one(_sql.counts)
    return (row["pending"], row["running"]) if row else (0, 0)
