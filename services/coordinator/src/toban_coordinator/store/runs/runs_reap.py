"""Runs that need the leader's care: orphans, runs of executors that are off, runs far past their timeout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from toban_domain.run import RunState
from toban_domain.transitions import LiveRun
from toban_store import queries
from toban_store.tx import FencedTx, Tx

_sql = queries.load(__name__)


class OverduePage(NamedTuple):
    """A place in the list of overdue runs: when the timeout of a run passed, and the run."""

    deadline: datetime
    run_id: int


FIRST_PAGE = OverduePage(datetime(1, 1, 2, tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True)
class OverdueRun:
    """A RUNNING run past its timeout, without the seconds in which it was frozen, and its place in the list of them."""

    run: LiveRun
    started_at: datetime
    timeout_seconds: int
    frozen_seconds: float
    place: OverduePage


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


async def overdue(t: Tx, now: datetime, *, after: OverduePage = FIRST_PAGE, limit: int) -> list[OverdueRun]:
    """RUNNING runs past their timeout at `now`, the longest first, that come behind `after`."""
    found = []
    params = {"now": now, "after_deadline": after.deadline, "after_id": after.run_id, "limit": limit}
    for row in await t.fetch_all(_sql.overdue, params):
        started_at, timeout = row.pop("started_at"), row.pop("timeout_seconds")
        frozen, deadline = row.pop("frozen_seconds"), row.pop("deadline")
        run = LiveRun(**row, state=RunState.RUNNING, started=True)
        found.append(OverdueRun(run, started_at, timeout, frozen, OverduePage(deadline, run.id)))
    return found
