"""Epochs that executors present: what they are measured by, and those that were refused (docs/fencing.md 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit

_Q = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The leader row, with PostgreSQL's clock (Unix time, seconds); grant_seq and instance are those of the incarnation asked for, None without."""

    epoch: int
    cluster_id: str
    settled: bool
    server_time: int
    grant_seq: int | None
    instance: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An executor whose epoch was refused, and why."""

    instance: str
    node_id: str
    epoch: int
    reason: str


async def facts(pool: Pool, incarnation: str | None) -> Facts:
    """What a claim is measured by, now. Raises StoreError."""
    async with autocommit(pool) as t:
        row = await t.fetch_one(_Q.facts, {"incarnation": incarnation})
    if row is None:
        raise LookupError("the leader row is missing: run the migrations")
    return Facts(**row)


async def note(pool: Pool, refused: Refused) -> None:
    """Keep an executor that was refused for `toban doctor`."""
    async with autocommit(pool) as t:
        await t.execute(_Q.note, {name: getattr(refused, name) for name in refused.__slots__})


async def forget(t: Tx) -> None:
    """Drop what the leader's epoch covers by now."""
    await t.execute(_Q.forget)


async def refused(t: Tx) -> Sequence[Row]:
    """Those of the last hour: instance, node_id, epoch, reason, age in seconds."""
    return await t.fetch_all(_Q.refused)
