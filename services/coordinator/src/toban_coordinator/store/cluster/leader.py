"""The leader row and its beat: who leads is what these rows say (docs/fencing.md 3.1-3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from toban_domain.epoch import Term, next_epoch
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import FencedTx, Row, Tx, autocommit, tx

_Q = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """The coordinator that takes over: who it is and where the others reach it."""

    incarnation: str
    worker_id: int
    address: str
    node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A won take-over. `settled`: this term's cluster is the one that a leader has seen stand for a whole lease."""

    term: Term
    settled: bool
    server_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """A committed beat, with the clock and the cluster of PostgreSQL. `demoted`: an operator asks this term to end.

    `holder` is whom the leader row names for this epoch, "" when it has another one.
    """

    beat: int
    demoted: bool
    server_time: datetime
    timeline: int
    system_id: str
    database: int
    holder: str

    def is_of(self, term: Term) -> bool:
        """Whether it was written where the term was taken, while the leader row named its leader."""
        cluster = (self.system_id, self.timeline, self.database) == (term.system_id, term.timeline, term.database)
        return cluster and self.holder == term.incarnation


async def read_row(pool: Pool) -> Row:
    """epoch, holder ('' = none), worker_id, address, node_id, resigned_epoch, beat, last_tick_at, last_fire_at, server_time, beat_age."""
    async with autocommit(pool) as t:
        row = await t.fetch_one(_Q.read_row)
    if row is None:
        raise LookupError("the leader row is missing: run the migrations")
    return row


async def take_over(pool: Pool, contender: Contender, *, observed: int, beat: int) -> Taken | None:
    """Compare-and-set the leader row from the observed epoch and beat; None when another coordinator was first or the leader lives.

    Raises EpochExhausted when no larger epoch exists.
    """
    async with autocommit(pool) as t:
        prospect = await _prospect(t)
        epoch = next_epoch(observed=observed, timeline=prospect["timeline"], same_cluster=prospect["same_cluster"])
        params = {
            "epoch": epoch,
            "holder": contender.incarnation,
            "worker_id": contender.worker_id,
            "address": contender.address,
            "node_id": contender.node_id,
            "observed": observed,
            "beat": beat,
            "timeline": prospect["timeline"],
            "system_id": prospect["system_id"],
            "database": prospect["database"],
        }
        row = await t.fetch_one(_Q.take_over, params)
    if row is None:
        return None
    term = Term(
        epoch=epoch,
        worker_id=contender.worker_id,
        incarnation=contender.incarnation,
        system_id=prospect["system_id"],
        timeline=prospect["timeline"],
        database=prospect["database"],
    )
    return Taken(term=term, settled=row["settled"], server_time=row["server_time"])


async def _prospect(t: Tx) -> Row:
    row = await t.fetch_one(_Q.prospect)
    if row is None:
        raise LookupError("no answer about the cluster")
    return row


async def beat(
    pool: Pool, epoch: int, *, last_tick_at: datetime | None, last_fire_at: datetime | None = None
) -> Beaten | None:
    """Write the beat; None when the epoch has moved on.

    `last_tick_at` is when a loop of this term last finished a turn, `last_fire_at` the newest slot that it fired.
    """
    params = {"epoch": epoch, "last_tick_at": last_tick_at, "last_fire_at": last_fire_at}
    async with autocommit(pool) as t:
        row = await t.fetch_one(_Q.beat, params)
    return Beaten(**row) if row else None


async def resign(pool: Pool, epoch: int) -> bool:
    """Give this epoch up and wake the others; False when it is not the row's any more."""
    async with tx(pool) as t:
        resigned = await t.execute(_Q.resign, {"epoch": epoch}) == 1
        if resigned:
            await t.notify("leader")
    return resigned


async def raise_epoch(t: Tx, *, observed: int, epoch: int) -> bool:
    """Put the leader row above every epoch that is lost: the present leader is fenced, the cluster is not settled, and the next leader waits a lease.

    Wakes the others. False when the row has another epoch than `observed`.
    """
    raised = await t.execute(_Q.raise_epoch, {"observed": observed, "epoch": epoch}) == 1
    if raised:
        await t.notify("leader")
    return raised


async def demote(t: Tx, epoch: int) -> bool:
    """Ask the leader of this epoch to step down; its next beat tells it. False when another epoch leads."""
    return await t.execute(_Q.demote, {"epoch": epoch}) == 1


async def settle(t: FencedTx) -> None:
    """Mark the cluster of this term as settled."""
    cluster = {"system_id": t.term.system_id, "timeline": t.term.timeline, "database": t.term.database}
    await t.execute(_Q.settle, cluster)


async def longest_lease_ms(pool: Pool) -> int:
    """The longest lease of any executor that is not off, milliseconds; 0 when there is none."""
    async with autocommit(pool) as t:
        row = await t.fetch_one(_Q.longest_lease)
    return int(row["lease_ms"]) if row else 0
