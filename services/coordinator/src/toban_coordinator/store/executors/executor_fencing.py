"""The fence: an executor whose lease has ended for sure loses its row and its runs, in one fenced transaction (docs/fencing.md 3.8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_domain.job import DEFAULT_LOST_AFTER_SECONDS
from toban_store import queries
from toban_store.tx import FencedTx

_Q = queries.load(__name__)
# A fenced transaction is short: runs beyond this many are put back by reap, which looks for runs of executors that are off.
RUN_LIMIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """One incarnation to fence, the grant counter that stood still, and why."""

    incarnation: str
    grant_seq: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """What a fence did: the incarnations that are off now (the others had been granted meanwhile), and how many runs it moved."""

    incarnations: tuple[str, ...]
    runs: int


async def fence(t: FencedTx, fences: Sequence[Fence], *, run_limit: int = RUN_LIMIT) -> Fenced:
    """Fence by compare-and-set on (incarnation, grant_seq). Runs with a cancel asked stay: reap ends them, with the fence as proof.

    At most `run_limit` runs are moved here.
    """
    params = {
        "incarnations": [item.incarnation for item in fences],
        "grants": [item.grant_seq for item in fences],
        "reasons": [item.reason for item in fences],
    }
    rows = await t.fetch_all(_Q.off, params)
    off = tuple(row["incarnation"] for row in rows)
    if not off:
        return Fenced(incarnations=(), runs=0)
    moved = await t.fetch_one(
        _Q.orphan, {"incarnations": list(off), "limit": run_limit, "lost_after": DEFAULT_LOST_AFTER_SECONDS}
    )
    await t.notify("reap")
    return Fenced(incarnations=off, runs=int(moved["moved"]) if moved else 0)
