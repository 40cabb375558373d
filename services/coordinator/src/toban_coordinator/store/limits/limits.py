"""Limits: what operators and definitions say, what live runs take of them, and the groups of policies. What is used is counted, never stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from toban_coordinator.decide.limits.breaker import Breaker, Signal, factor_at
from toban_coordinator.decide.limits.groups import GroupFacts
from toban_coordinator.decide.limits.limits import CurrentJob, LimitTable, Need, Usage
from toban_domain.concurrency import ConcurrencySpec
from toban_domain.transitions import Hold
from toban_store import queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)
LOCK: str = _sql.lock
"""Until the end of the transaction no other one counts limits: `first` of a fenced_tx."""
# How long a resumed run keeps its room while it is not sent, seconds: one that fits no executor must not keep it from others.
RESERVE_SECONDS = 5.0
# Rows that one statement clears away.
CLEARED = 2000


async def table(t: Tx, names: Collection[str]) -> LimitTable:
    """All limits with their breakers and health signals; the definitions with a concurrency section, and those called `names`."""
    values, breakers, factors = {}, {}, {}
    for row in await t.fetch_all(_sql.values):
        name = row["name"]
        if row["value"] is not None:
            values[name] = row["value"]
        elif row["factor"] is None:
            breakers[name] = Breaker(**{key: row[key] for key in ("state", "since", "by_hand", "reason", "updated_by")})
        elif (factor := factor_at(signal_of(row), row["server_time"])) < 1.0:
            factors[name] = factor
    return LimitTable(values, await current_jobs(t, names), breakers, factors)


def signal_of(row: Row) -> Signal:
    """A health signal from a row of its table."""
    return Signal(
        level=row["state"],
        factor=row["factor"],
        since=row["since"],
        holds_until=row["holds_until"],
        reason=row["reason"],
        updated_by=row["updated_by"],
    )


async def current_jobs(t: Tx, names: Collection[str]) -> dict[str, CurrentJob]:
    """The current versions of definitions with a concurrency section, and of those called `names`."""
    rows = await t.fetch_all(_sql.current_jobs, {"names": list(names)})
    return {
        row["name"]: CurrentJob(version=row["version"], concurrency=ConcurrencySpec.from_json(row["concurrency"] or {}))
        for row in rows
    }


async def usage(t: Tx, keys: Mapping[str, int]) -> dict[str, Usage]:
    """How limits are used; `keys` with their windows."""
    return (await usage_for(t, keys, ()))[0]


async def usage_for(t: Tx, keys: Mapping[str, int], ids: Collection[int]) -> tuple[dict[str, Usage], set[int]]:
    """The same, and those of the runs `ids` that start whatever their limits say."""
    if not keys:
        return {}, set()
    parameters = {
        "keys": list(keys),
        "windows": list(keys.values()),
        "reserve_seconds": RESERVE_SECONDS,
        "ids": list(ids),
    }
    rows = await t.fetch_all(_sql.usage, parameters)
    ignoring = {run for row in rows for run in row.pop("ignoring")}
    return {row.pop("key"): Usage(**row) for row in rows}, ignoring


async def adopt(t: FencedTx, jobs: Collection[str]) -> None:
    """Sent runs of `jobs` hold the limits of their jobs, also when those had none when they were sent."""
    await t.execute(_sql.adopt, {"jobs": list(jobs)})


async def hold(
    t: FencedTx, offered: Sequence[tuple[int, Hold]], starts: Sequence[tuple[int, Need]], drop: Collection[str]
) -> None:
    """What offered runs take, and what counts against start rates, each with its token. Clears away what ended runs took of the limits `drop`."""
    if drop:
        await t.execute(_sql.drop_holds, {"keys": list(drop), "all": False, "limit": CLEARED})
    if offered:
        parameters = {
            "keys": [one.key for _, one in offered],
            "ids": [one.run_id for _, one in offered],
            "tokens": [token for token, _ in offered],
            "weights": [one.weight for _, one in offered],
        }
        await t.execute(_sql.hold, parameters)
    if starts:
        windows = {need.key: need.window for _, need in starts}
        await t.execute(_sql.drop_starts, {"keys": list(windows), "windows": list(windows.values())})
        parameters = {"keys": [need.key for _, need in starts], "tokens": [token for token, _ in starts]}
        await t.execute(_sql.note_starts, parameters)


async def clear(t: FencedTx, *, oldest_start_seconds: int) -> int:
    """Deletes expired rows of limits that are not in use; returns how many."""
    await t.execute(_sql.drop_overrides)
    dropped = await t.execute(_sql.drop_holds, {"keys": [], "all": True, "limit": CLEARED})
    return dropped + await t.execute(_sql.drop_starts, {"keys": [""], "windows": [oldest_start_seconds]})


async def claim(t: FencedTx, ids: Collection[int]) -> set[int]:
    """Those of `ids` that hold their groups now. Raises Refused when another run takes one at the same time."""
    return {row["id"] for row in await t.fetch_all(_sql.claim, {"ids": list(ids)})}


async def groups(t: Tx, keys: Collection[tuple[int, str]], now: datetime) -> dict[tuple[int, str], GroupFacts]:
    """The live runs of groups, by (definition, group)."""
    parameters = {"definition_ids": [d for d, _ in keys], "groups": [group for _, group in keys], "now": now}
    found = {}
    for row in await t.fetch_all(_sql.groups, parameters):
        found[row["definition_id"], row["group"]] = GroupFacts(
            sent=tuple(row["sent"]),
            deferred=tuple(row["deferred"]),
            earliest=None if row["earliest_id"] is None else (row["earliest_time"], row["earliest_id"]),
            newest=None if row["newest_id"] is None else (row["newest_time"], row["newest_id"]),
            claimed_by=row["claimed_by"],
            succeeded=row["succeeded"],
        )
    return found
