"""Ends of runs and the ways back: RUNNING, terminal states, PENDING again, ORPHANED, CANCEL_REQUESTED. Each a batch in one statement.

Every function answers with the ids that moved; a run that is missing there was not in the expected (state, token) any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban_domain.moves import Finish, LiveRun, Orphan, Release, RequestCancel, Started
from toban_domain.outcome import AttemptKey, Outcome
from toban_domain.payload import canonical_json
from toban_domain.run import RunState
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that became terminal: for metrics. `start_lag` is slot → start in seconds, None when it never started."""

    id: int
    job: str
    state: str
    origin: str
    start_lag: float | None


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The stored form of an outcome: two outcomes are the same when these are equal."""
    return {
        "kind": outcome.kind.value,
        "reason": outcome.reason.value,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "error_summary": outcome.error_summary,
        "started_at": outcome.started_at.isoformat() if outcome.started_at else None,
        "finished_at": outcome.finished_at.isoformat(),
        "last_seq": outcome.last_seq,
        "tree_empty": outcome.tree_empty,
        "last_line": outcome.last_line,
    }


async def lock_live(t: Tx, ids: Sequence[int]) -> dict[int, LiveRun]:
    """Locks those of `ids` that are live, in the order of their ids."""
    rows = await t.fetch_all(_sql.lock_live, {"ids": list(ids)})
    return {row["id"]: LiveRun(**{**row, "state": RunState(row["state"])}) for row in rows}


async def mark_started(t: Tx, moves: Sequence[Started]) -> set[int]:
    """ASSIGNED → RUNNING."""
    if not moves:
        return set()
    rows = await t.fetch_all(
        _sql.started,
        {"ids": [m.run_id for m in moves], "tokens": [m.token for m in moves], "times": [m.at for m in moves]},
    )
    return {row["id"] for row in rows}


async def finish(t: Tx, moves: Sequence[Finish]) -> list[Finished]:
    """live → terminal, into the history; wakes loop `assign` when a run waits."""
    return await _finish(t, _finish_parameters(moves), ()) if moves else []


async def finish_held(
    t: Tx, incarnation: str, target: RunState, outcomes: Mapping[AttemptKey, Outcome]
) -> list[Finished]:
    """The same for attempts that `incarnation` holds, in whatever state, without looking at them before.

    Only for outcomes that end a run in `target` from every state in which an executor holds it.
    """
    if not outcomes:
        return []
    moves = [
        Finish(
            run_id=key.run_id,
            # Stands for any held state; the parameter below says so.
            source=RunState.RUNNING,
            token=key.token,
            target=target,
            reason=outcome.reason.value,
            error_summary=outcome.error_summary,
            message=outcome.error_summary,
            attempt_state=target.value,
            outcome=outcome,
        )
        for key, outcome in outcomes.items()
    ]
    return await _finish(t, {**_finish_parameters(moves), "sources": [""] * len(moves)}, (incarnation,))


async def _finish(t: Tx, parameters: dict[str, list[Any]], reporters: Sequence[str]) -> list[Finished]:
    rows = await t.fetch_all(_sql.finish, {**parameters, "reporters": list(reporters)})
    return [Finished(row["id"], row["job_name"], row["target"], row["origin"], row["start_lag"]) for row in rows]


def _finish_parameters(moves: Sequence[Finish]) -> dict[str, list[Any]]:
    outcomes = [m.outcome for m in moves]
    return {
        "ids": [m.run_id for m in moves],
        "sources": [m.source.value for m in moves],
        "tokens": [m.token for m in moves],
        "targets": [m.target.value for m in moves],
        "reasons": [m.reason for m in moves],
        "errors": [m.error_summary for m in moves],
        "messages": [m.message for m in moves],
        "actors": [m.actor for m in moves],
        "attempt_states": [m.attempt_state for m in moves],
        "outcomes": [canonical_json(outcome_json(o)) if o else None for o in outcomes],
        "started": [o.started_at if o else None for o in outcomes],
        "finished": [o.finished_at if o else None for o in outcomes],
        "exit_codes": [o.exit_code if o else None for o in outcomes],
        "signals": [o.signal if o else None for o in outcomes],
        "last_seqs": [o.last_seq if o else None for o in outcomes],
        "last_lines": [o.last_line if o else "" for o in outcomes],
    }


async def release(t: Tx, moves: Sequence[Release]) -> set[int]:
    """live → PENDING, held by nobody."""
    if not moves:
        return set()
    rows = await t.fetch_all(
        _sql.release,
        {
            "ids": [m.run_id for m in moves],
            "sources": [m.source.value for m in moves],
            "tokens": [m.token for m in moves],
            "attempts": [m.attempt for m in moves],
            "losts": [m.lost_count for m in moves],
            "delays": [m.delay_seconds for m in moves],
            "types": [m.event for m in moves],
            "messages": [m.message for m in moves],
            "started": [m.started_at for m in moves],
        },
    )
    return {row["id"] for row in rows}


async def orphan(t: Tx, moves: Sequence[Orphan]) -> set[int]:
    """ASSIGNED | RUNNING → ORPHANED."""
    if not moves:
        return set()
    rows = await t.fetch_all(
        _sql.orphan,
        {
            "ids": [m.run_id for m in moves],
            "sources": [m.source.value for m in moves],
            "tokens": [m.token for m in moves],
            "messages": [m.message for m in moves],
        },
    )
    return {row["id"] for row in rows}


async def request_cancel(t: Tx, moves: Sequence[RequestCancel]) -> set[int]:
    """ASSIGNED | RUNNING → CANCEL_REQUESTED."""
    if not moves:
        return set()
    rows = await t.fetch_all(
        _sql.request_cancel,
        {
            "ids": [m.run_id for m in moves],
            "sources": [m.source.value for m in moves],
            "tokens": [m.token for m in moves],
            "reasons": [m.reason for m in moves],
            "modes": [m.mode for m in moves],
            "actors": [m.actor for m in moves],
        },
    )
    return {row["id"] for row in rows}
