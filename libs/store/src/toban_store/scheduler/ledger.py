"""The fire ledger: each due slot has one run or one named skip; a stretch of skipped slots is one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One slot, or a stretch of skipped ones."""

    first_slot: datetime
    last_slot: datetime
    slots: int
    outcome: str
    run_id: int | None
    message: str


async def withdraw(t: Tx, schedule_id: int, run_ids: Sequence[int], message: str) -> int:
    """fired → withdrawn for the slots of runs that an edit took back; answers how many."""
    if not run_ids:
        return 0
    return await t.execute(_sql.withdraw, {"schedule_id": schedule_id, "run_ids": list(run_ids), "message": message})


async def of_schedule(t: Tx, schedule_id: int, *, limit: int = 100) -> list[LedgerRow]:
    """The latest rows of one schedule."""
    rows = await t.fetch_all(_sql.of_schedule, {"schedule_id": schedule_id, "limit": limit})
    return [LedgerRow(**row) for row in rows]
