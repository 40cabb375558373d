"""The epochs from the beginning, for a cluster that has used them up and where nothing runs (docs/fencing.md 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.store.cluster import audit
from toban_domain.epoch import MAX_COUNTER, MAX_GENERATION, Epoch, EpochExhausted
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

_Q = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What moves while anything lives. `lease_ms` is the longest lease that an executor may still hold."""

    epoch: int
    beat: int
    coordinator_seen_at: datetime | None
    grants: int
    incarnations: int
    lease_ms: int


async def activity(pool: Pool) -> Activity:
    """One look."""
    async with autocommit(pool) as t:
        row = await t.fetch_one(_Q.activity)
    if row is None:
        raise LookupError("the leader row is missing: run the migrations")
    return Activity(**row)


async def reset(pool: Pool, *, seen: Activity, actor: str) -> int | None:
    """Begin at the lowest generation that no attempt of a live run has used, as another cluster; its epoch.

    The counter begins above those of earlier terms, so that a coordinator that was stopped in one of them is fenced. None when the row has
    another epoch than `seen`. Raises EpochExhausted when they have used every generation.
    """
    async with tx(pool) as t:
        row = await t.fetch_one(_Q.lock)
        if row is None or row["epoch"] != seen.epoch:
            return None
        generation = await _unused_generation(t, at_least=row["timeline"])
        epoch = Epoch(generation, min(max(0, row["minutes"]), MAX_COUNTER)).pack()
        await t.execute(_Q.close_executors)
        await t.execute(_Q.reset, {"epoch": epoch})
        await audit.note(t, actor, "reset_epochs", "cluster", before={"epoch": seen.epoch}, after={"epoch": epoch})
    return epoch


async def _unused_generation(t: Tx, *, at_least: int) -> int:
    used = {row["generation"] for row in await t.fetch_all(_Q.used_generations)}
    for generation in range(max(1, at_least), MAX_GENERATION + 1):
        if generation not in used:
            return generation
    raise EpochExhausted("attempts of live runs have used every generation")
