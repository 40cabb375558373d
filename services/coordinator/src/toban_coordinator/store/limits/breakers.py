"""Breakers, health signals, and runs that ignore limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import datetime

from toban_coordinator.decide.limits.breaker import Breaker, Ended, Signal
from toban_coordinator.store.limits.limits import signal_of
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)
# Runs of a job that one look counts, the latest.
COUNTED = 2000


async def ended(t: Tx, since: Mapping[str, tuple[datetime, bool]]) -> dict[str, Ended]:
    """How runs of jobs ended, by name of the breaker; `since`: from when on, and whether only runs that were sent since then count."""
    parameters = {
        "names": list(since),
        "jobs": [name.partition(":")[2] for name in since],
        "since": [at for at, _ in since.values()],
        "probes": [probes for _, probes in since.values()],
        "limit": COUNTED,
    }
    rows = await t.fetch_all(_sql.ended, parameters)
    return {row.pop("name"): Ended(**row) for row in rows}


async def move(t: Tx, name: str, before: Breaker | None, after: Breaker) -> bool:
    """Stores `after` in place of `before`; False when that is not the stored one any more."""
    source = {"from_state": before.state if before else None, "from_since": before.since if before else None}
    return await t.execute(_sql.move, {"name": name, **asdict(after), **source}) == 1


async def one(t: Tx, name: str) -> Breaker | None:
    """The breaker, locked until the end of the transaction; None when it was never open."""
    row = await t.fetch_one(_sql.one, {"name": name})
    return None if row is None else Breaker(**row)


async def forget(t: Tx, name: str) -> None:
    """Deletes the breaker and the health signal of a limit."""
    await t.execute(_sql.forget, {"name": name})


async def signal(t: Tx, name: str) -> Signal | None:
    """The last health signal, locked until the end of the transaction."""
    row = await t.fetch_one(_sql.signal, {"name": name})
    return None if row is None else signal_of(row)


async def signals(t: Tx) -> dict[str, Signal]:
    """All health signals, by the name of their limit."""
    return {row["name"]: signal_of(row) for row in await t.fetch_all(_sql.signals)}


async def put_signal(t: Tx, name: str, after: Signal) -> None:
    """Stores a health signal."""
    await t.execute(_sql.put_signal, {"name": name, **asdict(after)})


async def ignore_limits(t: Tx, ids: Collection[int]) -> None:
    """These runs start whatever their limits say."""
    await t.execute(_sql.ignore_limits, {"ids": list(ids)})


async def server_time(t: Tx) -> datetime:
    """PostgreSQL's time: the one by which states and signals are dated."""
    row = await t.fetch_one(_sql.server_time)
    assert row is not None, "a SELECT without FROM has one row"
    at: datetime = row["at"]
    return at
