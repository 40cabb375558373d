"""Figures of the whole cluster for its metrics, and the oldest slot that is due and not fired. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRuns:
    """Due runs of one definition version that no executor holds; `retry` = they wait for their next attempt, `claimed` = an external worker has
    them. `oldest` is an age, seconds."""

    state: str
    definition_id: int
    version: int
    retry: bool
    claimed: bool
    runs: int
    oldest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRuns:
    """Runs of one state; `oldest` is how long the first has been in it, `overtime` how far one ran beyond its timeout, seconds."""

    state: str
    runs: int
    oldest: float
    overtime: float


@dataclass(frozen=True, slots=True)
class ExecutorExtremes:
    """The worst of all executors: clock (seconds off PostgreSQL's) and free disk (bytes); None = no executor has reported it."""

    clock_skew: float | None
    disk_free: int | None


async def waiting(t: Tx, *, limit: int) -> list[WaitingRuns]:
    """What waits, counted up to `limit` runs."""
    return [WaitingRuns(**row) for row in await t.fetch_all(_sql.waiting, {"limit": limit})]


async def held(t: Tx) -> list[HeldRuns]:
    """What executors hold."""
    return [HeldRuns(**row) for row in await t.fetch_all(_sql.held)]


async def overdue_seconds(t: Tx) -> float:
    """For how long the oldest slot has been due and unsettled; 0 when none is."""
    row = await t.fetch_one(_sql.overdue)
    return 0.0 if row is None else float(row["seconds"])


async def executor_extremes(t: Tx) -> ExecutorExtremes:
    """The worst of all executors."""
    row = await t.fetch_one(_sql.executor_extremes)
    return ExecutorExtremes(None, None) if row is None else ExecutorExtremes(**row)


async def standbys(t: Tx) -> dict[str, int]:
    """Stand-bys of PostgreSQL: sync, async, unknown."""
    return {row["mode"]: row["standbys"] for row in await t.fetch_all(_sql.standbys)}
