"""Orders that the leader could not deliver itself: written fenced, sent with the answer to the executor's next heartbeat (docs/fencing.md 3.8)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from toban_coordinator.decide.runs.reconcile import DISPATCH_SECONDS
from toban_domain.outcome import AttemptKey
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import FencedTx, Tx, autocommit, tx

_Q = queries.load(__name__)
# Orders that one answer to a heartbeat carries.
OPEN_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedOrder:
    """An open order. `kind` is cancel or revoke."""

    id: int
    incarnation: str
    kind: str
    run_id: int | None
    token: int | None
    payload: Mapping[str, Any]
    epoch: int
    serial: int


async def queue(
    t: FencedTx, *, incarnation: str, kind: str, serial: int, orders: Sequence[tuple[AttemptKey, Mapping[str, Any]]]
) -> None:
    """Write orders of one kind to one incarnation; one that is open already stays as it is."""
    params = {
        "incarnation": incarnation,
        "kind": kind,
        "epoch": t.term.epoch,
        "serial": serial,
        "runs": [key.run_id for key, _ in orders],
        "tokens": [key.token for key, _ in orders],
        "payloads": [json.dumps(dict(payload)) for _, payload in orders],
    }
    await t.execute(_Q.queue, params)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderUpdates:
    """What the answer to a heartbeat contains besides the grant.

    `smallest_live_token`: of the attempts whose start the incarnation has not confirmed (0: none). `not_held`: attempts that it reports as held
    and that PostgreSQL does not hold for it. `orders`: its open orders, oldest first. `unresolved`: PostgreSQL holds an attempt for it that it
    does not name, or did so before.
    """

    smallest_live_token: int = 0
    not_held: tuple[AttemptKey, ...] = ()
    orders: tuple[QueuedOrder, ...] = ()
    unresolved: bool = False


async def updates(
    pool: Pool,
    held: Mapping[str, Sequence[AttemptKey]],
    unanswered: Mapping[str, Sequence[AttemptKey]] = MappingProxyType({}),
) -> dict[str, OrderUpdates]:
    """The updates for each incarnation, given the attempts that it says it holds; all of it as one statement shows it.

    `unanswered` has the incarnations that name every attempt, each with those that have ended and are not answered.
    """
    held_by, runs, tokens = _columns(held)
    ended_by, ended_runs, ended_tokens = _columns(unanswered)
    params = {
        "incarnations": list(held),
        "held_by": held_by,
        "runs": runs,
        "tokens": tokens,
        "complete": list(unanswered),
        "unanswered_by": ended_by,
        "unanswered_runs": ended_runs,
        "unanswered_tokens": ended_tokens,
        "grace": DISPATCH_SECONDS,
        "limit": OPEN_LIMIT,
    }
    async with autocommit(pool) as t:
        rows = await t.fetch_all(_Q.updates, params)
    return {
        row["incarnation"]: OrderUpdates(
            smallest_live_token=row["smallest_live_token"],
            not_held=tuple(AttemptKey(run, token) for run, token in row["not_held"]),
            orders=tuple(QueuedOrder(**order) for order in row["orders"]),
            unresolved=row["unresolved"],
        )
        for row in rows
    }


def _columns(attempts: Mapping[str, Sequence[AttemptKey]]) -> tuple[list[str], list[int], list[int]]:
    """Incarnations, runs and tokens, row by row."""
    rows = [(incarnation, *key) for incarnation, keys in attempts.items() for key in keys]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneOrder:
    """An order that was answered; `result` is "" when its executor went off before it answered."""

    id: int
    kind: str
    run_id: int | None
    token: int | None
    result: str

    @property
    def gone(self) -> AttemptKey | None:
        """The attempt that the executor promised never to run; None when it said anything else."""
        return self._key if self.kind == "revoke" and self.result == "gone" else None

    @property
    def ended(self) -> AttemptKey | None:
        """The attempt that the executor has ended, by its word; None when it said anything else."""
        return self._key if self.result == "finished" else None

    @property
    def _key(self) -> AttemptKey | None:
        return None if self.run_id is None or self.token is None else AttemptKey(self.run_id, self.token)


async def done(t: Tx, *, limit: int) -> list[DoneOrder]:
    """Answered orders, and those of executors that are off, oldest first."""
    return [DoneOrder(**row) for row in await t.fetch_all(_Q.done, {"limit": limit})]


async def forget(t: FencedTx, ids: Sequence[int]) -> None:
    """Drops orders that are done with."""
    await t.execute(_Q.forget, {"ids": list(ids)})


async def finish(pool: Pool, *, incarnation: str, results: Mapping[int, str]) -> None:
    """Close orders with the executor's answers, and wake the transactions that wait for them."""
    async with tx(pool) as t:
        params = {"incarnation": incarnation, "ids": list(results), "results": list(results.values())}
        if await t.execute(_Q.finish, params):
            await t.notify("reap")
