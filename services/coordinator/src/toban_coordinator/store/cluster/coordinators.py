"""The coordinators' rows: one an incarnation, for the cluster page and for who may answer a heartbeat."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import autocommit

_Q = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One incarnation of a coordinator: what of it never changes."""

    incarnation: str
    worker_id: int
    node_id: str
    address: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """One coordinator that was seen lately, `age_seconds` ago. `clock_skew_seconds`: its clock minus PostgreSQL's, None before it has said so.
    `settings_version` is the cluster's, for who reads this."""

    incarnation: str
    worker_id: int
    node_id: str
    address: str
    role: str
    clock_skew_seconds: float | None
    age_seconds: float
    settings_version: int


async def draw_worker_id(pool: Pool) -> int:
    """A worker id that no process ever had."""
    async with autocommit(pool) as t:
        row = await t.fetch_one(_Q.draw_worker_id)
    if row is None:
        raise LookupError("the sequence gave no worker id")
    return int(row["worker_id"])


async def register(pool: Pool, me: Process) -> None:
    """Insert the row of a new incarnation."""
    async with autocommit(pool) as t:
        await t.execute(_Q.register, asdict(me))


async def touch(
    pool: Pool,
    me: Process,
    *,
    role: str,
    clock_skew_seconds: float,
    certificate_not_after: datetime | None = None,
    seconds: float,
) -> list[Coordinator]:
    """Note that this coordinator is there, even if its row is gone, what it is (leader, subleader or standby), how far its clock is off
    PostgreSQL's, and when its certificate ends. The coordinators that wrote their rows within these seconds, as it was before."""
    params = {
        **asdict(me),
        "role": role,
        "skew": clock_skew_seconds,
        "certificate": certificate_not_after,
        "seconds": seconds,
    }
    async with autocommit(pool) as t:
        rows = await t.fetch_all(_Q.touch, params)
    return [Coordinator(**row) for row in rows]


async def stopped(pool: Pool, *, incarnation: str) -> None:
    """Note the end in order, which the cluster page tells apart from a loss."""
    async with autocommit(pool) as t:
        await t.execute(_Q.stopped, {"incarnation": incarnation})
