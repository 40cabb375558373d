"""Runs on demand that are made and placed by one fenced statement: one commit from the call to the order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.store.cluster.audit import caller_params
from toban_coordinator.store.runs.runs import NewRun, own_key
from toban_store import array_literals, queries
from toban_store.tx import FencedStatement

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlaced:
    """A run to be made, due now, with the token and the incarnation that it gets."""

    run: NewRun
    token: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class MadePlaced:
    """A run that was made and is ASSIGNED: its id, and the day of its logs."""

    id: int
    log_day: str


async def start_assigned(
    t: FencedStatement, new: Sequence[NewPlaced], *, actor: str, fresh_seconds: float, reason: str = ""
) -> list[MadePlaced] | None:
    """Make and place all of `new`, in that order, with one row in the audit; None, and nothing is made, when one of them cannot be.

    Executors have to be `on` with a heartbeat within `fresh_seconds`. Raises FencedOut, and Unique violations of keys as DidNotHappen.
    """
    rows = await t.fetch_fenced(
        _sql.start_assigned,
        {
            "definition_ids": array_literals.numbers(n.run.definition_id for n in new),
            "versions": array_literals.numbers(n.run.version for n in new),
            "jobs": array_literals.words(n.run.job for n in new),
            "priorities": array_literals.numbers(n.run.priority for n in new),
            "max_attempts": array_literals.numbers(n.run.max_attempts for n in new),
            "max_lost": array_literals.numbers(n.run.max_lost for n in new),
            "timeouts": array_literals.numbers(n.run.timeout_seconds for n in new),
            "tokens": array_literals.numbers(n.token for n in new),
            "incarnations": array_literals.words(n.incarnation for n in new),
            "executors": array_literals.words({n.incarnation for n in new}),
            # Payloads are JSON already, and together one document.
            "payloads": "[" + ",".join(n.run.payload for n in new) + "]",
            "keys": json.dumps([n.run.key or None for n in new]),
            "own_keys": json.dumps([n.run.key and own_key(n.run.job, n.run.key) for n in new]),
            "scopes": json.dumps([n.run.scope for n in new]),
            "scope_ids": json.dumps([n.run.scope_id for n in new]),
            "actor": actor,
            "noted": "run.start",
            "reason": reason,
            **caller_params(),
            "fresh_seconds": fresh_seconds,
        },
    )
    made = [MadePlaced(row["id"], row["log_day"]) for row in rows if row["id"] is not None]
    return made if len(made) == len(new) else None
