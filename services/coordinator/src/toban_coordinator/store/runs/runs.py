"""Runs as callers make and stop them: enqueue, idempotency keys, the lock for a cancel."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha512

from toban_coordinator.store.cluster.audit import caller_params
from toban_domain.run import RunState
from toban_domain.traceparent import TraceContext
from toban_store import array_literals, queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run on demand. `scheduled_for` None = now, by PostgreSQL; `payload` is canonical JSON; `key` "" = none."""

    definition_id: int
    version: int
    job: str
    payload: str
    scheduled_for: datetime | None = None
    priority: int = 0
    max_attempts: int = 1
    max_lost: int = 3
    timeout_seconds: int = 0
    key: str = ""
    scope: str = "system"
    scope_id: str = ""
    # Of the definition's concurrency policy; `claims`: no other live run may have claimed it.
    group: str | None = None
    claims: bool = False
    # The run that it repeats.
    rerun_of: int | None = None
    # Where in a trace the call is that starts it; kept by `traces.keep`.
    place: TraceContext | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """One answer of enqueue; `created` is False when the key was taken, and `id` then names no run."""

    id: int
    created: bool


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A request whose idempotency key names a run: its payload is canonical JSON, and `given` the part of it that the caller gives."""

    run_id: int
    version: int
    payload: str
    given: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelView:
    """A live run, locked; `sent` says that its dispatch was committed, `claimed` that an external worker has its step, the one at index `step`."""

    id: int
    state: RunState
    token: int | None
    sent: bool
    definition_id: int
    definition_version: int
    claimed: bool = False
    step: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits of one version of one definition: how many runs, and the oldest one's time."""

    definition_id: int
    version: int
    runs: int
    oldest: datetime


async def enqueue(t: Tx, new: Sequence[NewRun], *, actor: str, noted: str = "", reason: str = "") -> list[Enqueued]:
    """∅ → PENDING and a wake-up for loop `assign`, in one statement; answers in the order given. `noted` is the action of their one row in the
    audit, "" = none.

    Empty, and nothing is made, when a definition in `new` is not the current, enabled one any more: look it up again. One that repeats
    another run may be of an earlier version.
    """
    rows = await t.fetch_all(
        _sql.enqueue,
        {
            "definition_ids": array_literals.numbers(n.definition_id for n in new),
            "versions": array_literals.numbers(n.version for n in new),
            "jobs": array_literals.words(n.job for n in new),
            "times": array_literals.times(n.scheduled_for for n in new),
            "priorities": array_literals.numbers(n.priority for n in new),
            "max_attempts": array_literals.numbers(n.max_attempts for n in new),
            "max_lost": array_literals.numbers(n.max_lost for n in new),
            "timeouts": array_literals.numbers(n.timeout_seconds for n in new),
            # Payloads are JSON already, and together one document.
            "payloads": "[" + ",".join(n.payload for n in new) + "]",
            "keys": json.dumps([n.key or None for n in new]),
            "own_keys": json.dumps([n.key and own_key(n.job, n.key) for n in new]),
            "scopes": json.dumps([n.scope for n in new]),
            "scope_ids": json.dumps([n.scope_id for n in new]),
            "groups": json.dumps([n.group for n in new]),
            "claims": [n.claims for n in new],
            "reruns": array_literals.numbers(n.rerun_of for n in new),
            "actor": actor,
            "noted": noted,
            "reason": reason,
            **caller_params(),
        },
    )
    return [Enqueued(row["id"], row["created"]) for row in rows]


async def claimant(t: Tx, definition_id: int, group: str) -> int | None:
    """The live run that has claimed a group; None when it is free."""
    row = await t.fetch_one(_sql.claimant, {"definition_id": definition_id, "group": group})
    return None if row is None else int(row["id"])


async def succeeded(t: Tx, definition_id: int, group: str) -> int | None:
    """The run of a group of a job with repeatable: false that SUCCEEDED; None when there is none yet."""
    row = await t.fetch_one(_sql.succeeded, {"definition_id": definition_id, "group": group})
    return None if row is None else int(row["id"])


def own_key(job: str, key: str) -> str:
    """Where the key of a job is kept when a run of another job has taken it; longer than any that a caller may give."""
    return ":".join(sha512(text.encode()).hexdigest() for text in (job, key))


async def by_keys(t: Tx, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Runs by job and idempotency key; the same key of another job is not looked at."""
    params = {
        "jobs": json.dumps([job for job, _ in wanted]),
        "keys": json.dumps([key for _, key in wanted]),
        "own_keys": json.dumps([own_key(job, key) for job, key in wanted]),
    }
    rows = await t.fetch_all(_sql.by_keys, params)
    return {(row["job"], row["key"]): row["run_id"] for row in rows}


async def other_payload(t: Tx, asked: Sequence[AskedAgain]) -> int | None:
    """A run whose payload is not the one that is asked for; None when there is none. One that the history has dropped is not compared."""
    params = {
        "runs": array_literals.numbers(one.run_id for one in asked),
        "versions": array_literals.numbers(one.version for one in asked),
        "payloads": "[" + ",".join(one.payload for one in asked) + "]",
        "given": "[" + ",".join(one.given for one in asked) + "]",
    }
    row = await t.fetch_one(_sql.other_payload, params)
    return None if row is None else int(row["run_id"])


async def lock_for_cancel(t: Tx, run_id: int) -> CancelView | None:
    """Locks a live run; None when it is not live."""
    row = await t.fetch_one(_sql.lock_for_cancel, {"id": run_id})
    return None if row is None else CancelView(**{**row, "state": RunState(row["state"])})


async def final_state(t: Tx, run_id: int) -> RunState | None:
    """The terminal state of a run in the history; None when it is not there."""
    row = await t.fetch_one(_sql.final_state, {"id": run_id})
    return None if row is None else RunState(row["state"])


async def pending_by_definition(t: Tx, now: datetime) -> list[Waiting]:
    """What waits now, by definition and version."""
    rows = await t.fetch_all(_sql.pending_by_definition, {"now": now})
    return [Waiting(row["definition_id"], row["definition_version"], row["runs"], row["oldest"]) for row in rows]


async def waiting_since(t: Tx, definition_id: int, version: int, before: datetime, *, limit: int) -> list[int]:
    """Runs of one definition that never started and were due before `before`."""
    rows = await t.fetch_all(
        _sql.waiting_since, {"definition_id": definition_id, "version": version, "before": before, "limit": limit}
    )
    return [row["id"] for row in rows]


async def definitions_of(t: Tx, ids: Sequence[int]) -> dict[int, tuple[tuple[int, int], str]]:
    """The definition, and its version, of each of these runs that there is, with the result that an earlier step gave (JSON, "" = none)."""
    rows = await t.fetch_all(_sql.definitions_of, {"ids": list(ids)})
    return {row["id"]: ((row["definition_id"], row["definition_version"]), row["result"] or "") for row in rows}


async def kill_canceled(t: Tx, run_id: int, *, reason: str, actor: str) -> bool:
    """The cancel of a run becomes a kill; False when it is one already."""
    row = await t.fetch_one(_sql.kill_canceled, {"id": run_id, "reason": reason, "actor": actor})
    return row is not None
