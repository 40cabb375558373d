"""The deferred queue: runs that a limit holds back, how they enter and leave it, and whose turn is next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_domain.placement import DueRun
from toban_domain.run import RunState
from toban_domain.transitions import Defer
from toban_store import queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)
# Scopes that one read of a queue looks at; the next read goes on behind them.
SCOPES = 500
# How far the place of one run in its queue is counted, and how many scopes are listed beside it.
COUNTED = 1000
SHOWN_SCOPES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One of the first deferred runs of its scope; `weight` is how much of the limit it needs."""

    rank: int
    scope: str
    scope_id: str
    id: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueWait:
    """A deferred run that has waited for too long, or is late."""

    id: int
    definition_id: int
    version: int
    scheduled_for: datetime
    started: bool


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Runs of a higher rank, earlier runs of the same scope, and the scopes of its rank, each with how many of its runs wait."""

    more_urgent: int
    earlier: int
    scopes: Sequence[Row]


async def defer(t: FencedTx, moves: Sequence[Defer]) -> set[int]:
    """PENDING → DEFERRED."""
    if not moves:
        return set()
    parameters = {
        "ids": [m.run_id for m in moves],
        "keys": [m.key for m in moves],
        "weights": [m.weight for m in moves],
        "untils": [m.wait_until for m in moves],
        "messages": [m.message for m in moves],
    }
    return {row["id"] for row in await t.fetch_all(_sql.defer, parameters)}


async def resume(t: FencedTx, ids: Sequence[int]) -> set[int]:
    """DEFERRED → PENDING."""
    return {row["id"] for row in await t.fetch_all(_sql.resume, {"ids": list(ids)})}


async def keys(t: Tx, *, after: str = "", limit: int) -> list[str]:
    """The limits that runs are deferred on, in order, behind `after`."""
    return [row["key"] for row in await t.fetch_all(_sql.keys, {"after": after, "limit": limit})]


async def heads(t: Tx, key: str, *, after: tuple[str, str], largest: int, depth: int) -> list[Head]:
    """The first `depth` runs of each scope that wait for a limit with a weight of at most `largest`; scopes in turn, behind `after`."""
    parameters = {
        "key": key,
        "scope": after[0],
        "scope_id": after[1],
        "scopes": SCOPES,
        "largest": largest,
        "depth": depth,
    }
    return [Head(**row) for row in await t.fetch_all(_sql.heads, parameters)]


async def held_by_scope(t: Tx, key: str) -> dict[tuple[str, str], int]:
    """How much of a limit each scope has, those of resumed runs that were not sent included."""
    rows = await t.fetch_all(_sql.held_by_scope, {"key": key})
    return {(row["scope"], row["scope_id"]): row["held"] for row in rows}


async def overdue(t: Tx, now: datetime, *, limit: int) -> list[OverdueWait]:
    """Deferred runs whose `wait_until` has passed."""
    return [OverdueWait(**row) for row in await t.fetch_all(_sql.overdue, {"now": now, "limit": limit})]


async def place_of(t: Tx, run: DueRun) -> QueuePlace:
    """The place of `run` in the queue of its limit while it is DEFERRED, else among the runs that are due."""
    parameters: Mapping[str, object] = {
        "id": run.id,
        "key": run.deferred_on or "" if run.state is RunState.DEFERRED else "",
        "rank": run.priority * 2 - run.catch_up,
        "scope": run.scope,
        "scope_id": run.scope_id,
        "scheduled_for": run.scheduled_for,
        "most": COUNTED,
        "limit": SHOWN_SCOPES,
    }
    before = await t.fetch_one(_sql.runs_before, parameters)
    assert before is not None
    return QueuePlace(before["more_urgent"], before["earlier"], await t.fetch_all(_sql.scopes_in_turn, parameters))
