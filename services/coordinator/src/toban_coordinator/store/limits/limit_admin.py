"""Limits as operators change and look at them. Nothing here is on the path of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
WAKE = "limits"
"""The payload of the notification that comes with each change."""
SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLimit:
    """What an operator set."""

    name: str
    value: int
    reason: str
    version: int
    updated_at: datetime
    updated_by: str


@dataclass(frozen=True, slots=True)
class Queue:
    """How many runs wait for a limit, since when the first, and how much of it the heaviest needs."""

    waiting: int = 0
    since: datetime | None = None
    heaviest: int = 1


async def stored(t: Tx, name: str = "") -> dict[str, StoredLimit]:
    """By name; only the one called `name` when it is given."""
    return {row["name"]: StoredLimit(**row) for row in await t.fetch_all(_sql.stored, {"name": name})}


async def scope_weights(t: Tx) -> dict[tuple[str, str], int]:
    """Scope → its weight in the fair queues, of those that have another one than 1."""
    found = {}
    for name, limit in (await stored(t)).items():
        kind, _, scope = name.partition(":")
        if kind == "scope":
            first, _, scope_id = scope.partition("/")
            found[first, scope_id] = limit.value
    return found


async def lock(t: Tx, name: str) -> None:
    """One change of a limit at a time until the end of the transaction."""
    await t.execute(_sql.lock, {"name": name})


async def store(t: Tx, name: str, value: int, *, reason: str, actor: str) -> None:
    """Sets it, and tells the leader."""
    await t.execute(_sql.store, {"name": name, "value": value, "reason": reason, "actor": actor})
    await t.notify(WAKE)


async def remove(t: Tx, name: str) -> None:
    """Removes it, and tells the leader."""
    await t.execute(_sql.remove, {"name": name})
    await t.notify(WAKE)


async def users_of_pool(t: Tx, pool: str) -> list[tuple[str, int]]:
    """Jobs whose current versions take of a pool, and how much; the heaviest first."""
    return [(row["name"], row["weight"]) for row in await t.fetch_all(_sql.users_of_pool, {"pool": pool})]


async def queues(t: Tx, keys: Sequence[str]) -> dict[str, Queue]:
    """What waits for these limits."""
    rows = await t.fetch_all(_sql.queues, {"keys": list(keys)})
    return {row["key"]: Queue(row["waiting"], row["since"], row["heaviest"] or 1) for row in rows}


async def blocked_seconds(t: Tx, keys: Sequence[str]) -> float:
    """For how long runs have waited for one of these limits while it let none start; the longest, 0 without any."""
    row = await t.fetch_one(_sql.blocked, {"keys": list(keys)})
    return float(row["seconds"] or 0.0) if row else 0.0


async def holders(t: Tx, key: str) -> list[Row]:
    """Live runs that hold a limit, the longest first."""
    return await t.fetch_all(_sql.holders, {"key": key, "limit": SHOWN})


async def waiting(t: Tx, key: str) -> list[Row]:
    """Runs that wait for a limit, the longest first."""
    return await t.fetch_all(_sql.waiting, {"key": key, "limit": SHOWN})
