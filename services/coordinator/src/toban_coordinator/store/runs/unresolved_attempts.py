"""Attempts that PostgreSQL holds for an executor whose heartbeats do not name them, or name them as quarantined (docs/fencing.md 3.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toban_coordinator.decide.runs.reconcile import DISPATCH_SECONDS, HEARTBEATS, Unresolved
from toban_domain.outcome import AttemptKey
from toban_domain.run import RunState
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import FencedTx, Tx, tx

_Q = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Every attempt of an incarnation whose outcome no coordinator has accepted: `known` are live or unanswered, `quarantined` have the text of
    their refusal."""

    known: Sequence[AttemptKey] = ()
    quarantined: Mapping[AttemptKey, str] = field(default_factory=dict)


async def note(pool: Pool, heartbeats: Mapping[str, Named]) -> None:
    """Compares what these incarnations name with what PostgreSQL holds for them; wakes the leader when something has stayed open."""
    named = [(incarnation, *key) for incarnation, said in heartbeats.items() for key in said.known]
    refused = [
        (incarnation, *key, text) for incarnation, said in heartbeats.items() for key, text in said.quarantined.items()
    ]
    params = {
        "complete": list(heartbeats),
        "named_by": [row[0] for row in named],
        "named_runs": [row[1] for row in named],
        "named_tokens": [row[2] for row in named],
        "refused_by": [row[0] for row in refused],
        "refused_runs": [row[1] for row in refused],
        "refused_tokens": [row[2] for row in refused],
        "messages": [row[3] for row in refused],
        "grace": DISPATCH_SECONDS,
        "heartbeats": HEARTBEATS,
    }
    async with tx(pool) as t:
        row = await t.fetch_one(_Q.note, params)
        if row is not None and row["due"]:
            await t.notify("reconcile")


async def page(t: Tx, *, after: int, limit: int) -> list[Unresolved]:
    """What is noted of runs with ids above `after`, by id."""
    rows = await t.fetch_all(_Q.page, {"after": after, "limit": limit})
    return [
        Unresolved(
            key=AttemptKey(row["run_id"], row["token"]),
            state=RunState(row["state"]) if row["state"] else None,
            incarnation=row["incarnation"],
            worker_id=row["worker_id"],
            address=f"{row['grpc_host']}:{row['grpc_port']}",
            quarantined=row["quarantined"],
            heartbeats=row["heartbeats"],
            seconds=row["seconds"],
            message=row["message"],
        )
        for row in rows
    ]


async def still(t: FencedTx, attempts: Sequence[Unresolved]) -> set[AttemptKey]:
    """Those of `attempts` of which heartbeats still say the same, locked."""
    params = {**_keys([one.key for one in attempts]), "quarantined": [one.quarantined for one in attempts]}
    return {AttemptKey(row["run_id"], row["token"]) for row in await t.fetch_all(_Q.still, params)}


async def forget(t: FencedTx, keys: Sequence[AttemptKey]) -> None:
    """Drops what is resolved."""
    if keys:
        await t.execute(_Q.forget, _keys(keys))


def _keys(keys: Sequence[AttemptKey]) -> dict[str, list[int]]:
    return {"runs": [key.run_id for key in keys], "tokens": [key.token for key in keys]}
