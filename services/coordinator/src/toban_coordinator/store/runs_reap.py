"""Runs that need the leader's care: orphans, runs of executors that are off, runs far past their timeout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_domain.run import RunState
from toban_domain.transitions import LiveRun
from toban_store import queries
from toban_store.tx import FencedTx, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True)
class OverdueRun:
    """A RUNNING run past its timeout."""

    run: LiveRun
    started_at: datetime
    timeout_seconds: int


async def orphaned(t: Tx, *, limit: int) -> list[int]:
    """Ids of ORPHANED runs."""
    return [row["id"] for row in await t.fetch_all(_sql.orphaned, {"limit": limit})]


async def held_by_off(t: Tx, *, limit: int) -> list[int]:
    """Ids of runs that an incarnation holds which is off."""
    return [row["id"] for row in await t.fetch_all(_sql.held_by_off, {"limit": limit})]


async def lock_held_by_off(t: FencedTx, ids: Sequence[int]) -> list[LiveRun]:
    """Those of `ids` that an incarnation holds which is off, locked."""
    rows = await t.fetch_all(_sql.lock_held_by_off, {"ids": list(ids)})
    return [LiveRun(**{**row, "state": RunState(row["state"])}) for row in rows]


async def overdue(t: Tx, now: datetime, *, limit: int) -> list[OverdueRun]:
    """RUNNING runs past their timeout at `now`."""
    found = []
    for row in await t.fetch_all(_sql.overdue, {"now": now, "limit": limit}):
        started_at, timeout = row.pop("started_at"), row.pop("timeout_seconds")
        found.append(OverdueRun(LiveRun(**row, state=RunState.RUNNING, started=True), started_at, timeout))
    return found
