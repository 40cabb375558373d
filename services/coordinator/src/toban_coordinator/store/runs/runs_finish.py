"""Ends of runs and the ways back: RUNNING, terminal states, PENDING again, ORPHANED, CANCEL_REQUESTED. Each a batch in one statement.

Every function answers with the ids that moved; a run that is missing there was not in the expected (state, token) any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toban_coordinator.store.schedules import fire_ledger
from toban_domain.job import DEFAULT_LOST_AFTER_SECONDS
from toban_domain.outcome import AttemptKey, Outcome
from toban_domain.run import RunState
from toban_domain.transitions import Finish, LiveRun, Orphan, Release, RequestCancel, Started
from toban_store import array_literals, queries
from toban_store.tx import Tx

_sql = queries.load(__name__)
SKIPS = ("late", "overlap", "max_wait")
"""Reasons with which a run ends that was never sent to an executor: they go to the ledger of its slot."""


class HeldEnd(NamedTuple):
    """The outcome of an attempt as its executor, an incarnation, reports it."""

    incarnation: str
    key: AttemptKey
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that became terminal: for metrics, in seconds. `start_lag` is its time → start, `wait` its row (or its time) → start, both None
    but for a run that ended with its first attempt; `seconds` is how long its last attempt ran, None when it never started."""

    id: int
    job: str
    state: str
    origin: str
    reason: str
    incarnation: str
    token: int
    definition: tuple[int, int]
    start_lag: float | None
    wait: float | None
    seconds: float | None


class Ended(NamedTuple):
    """Runs that have ended, and the loops that go on with what waits."""

    finished: list[Finished]
    loops: set[str]


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The stored form of an outcome: two outcomes are the same when these are equal."""
    stored: dict[str, Any] = {
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
    if outcome.progress is not None:
        stored["progress"] = outcome.progress.to_json()
    if outcome.result_json:
        stored["result"] = json.loads(outcome.result_json)
    if outcome.log_ref:
        stored["log_ref"] = outcome.log_ref
    if outcome.error_lines:
        stored["error_lines"] = [line._asdict() for line in outcome.error_lines]
    if outcome.never_started:
        stored["never_started"] = True
    if outcome.steps:
        stored["steps"] = [step.to_json() for step in outcome.steps]
    return stored


async def lock_live(t: Tx, ids: Sequence[int]) -> dict[int, LiveRun]:
    """Locks those of `ids` that are live, in the order of their ids."""
    rows = await t.fetch_all(_sql.lock_live, {"ids": array_literals.numbers(ids)})
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
    """live → terminal, into the history; wakes loop `assign` when a run waits, `resume` when one is deferred."""
    return (await _finish(t, [_move(move, move.source.value) for move in moves])).finished if moves else []


async def finish_held(t: Tx, target: RunState, ends: Sequence[HeldEnd], *, notify: bool = True) -> Ended:
    """The same for attempts that their reporters hold, in whatever state, without looking at them before.

    Only for outcomes that end a run in `target` from every state in which an executor holds it. Without `notify` the caller wakes the loops
    after the commit, and knows itself whether a run waits.
    """
    moves = [
        {
            "id": end.key.run_id,
            "source": "",
            "reporter": end.incarnation,
            "token": end.key.token,
            "target": target.value,
            "reason": end.outcome.reason.value,
            "error": end.outcome.error_summary,
            "message": end.outcome.error_summary,
            "attempt_state": target.value,
            "outcome": outcome_json(end.outcome),
        }
        for end in ends
    ]
    return await _finish(t, moves, notify=notify)


async def finish_claimed(t: Tx, outcomes: Sequence[tuple[AttemptKey, str, Outcome]]) -> list[Finished]:
    """(claim, worker) → SUCCEEDED, where the worker holds the claim of the last step of a run, without looking at it before."""
    moves = [
        {
            "id": key.run_id,
            "source": "claimed",
            "token": key.token,
            "worker": worker,
            "target": RunState.SUCCEEDED.value,
            "attempt_state": RunState.SUCCEEDED.value,
            "outcome": outcome_json(outcome),
        }
        for key, worker, outcome in outcomes
    ]
    return (await _finish(t, moves)).finished if moves else []


def _move(move: Finish, source: str) -> dict[str, Any]:
    return {
        "id": move.run_id,
        "source": source,
        "token": move.token,
        "target": move.target.value,
        "reason": move.reason,
        "error": move.error_summary,
        "message": move.message,
        "actor": move.actor,
        "attempt_state": move.attempt_state,
        "outcome": outcome_json(move.outcome) if move.outcome else None,
    }


async def _finish(t: Tx, moves: Sequence[Mapping[str, Any]], *, notify: bool = True) -> Ended:
    parameters = {
        "moves": json.dumps(moves, separators=(",", ":")),
        "ids": array_literals.numbers(move["id"] for move in moves),
        "notify": notify,
    }
    rows = await t.fetch_all(_sql.finish, parameters)
    await fire_ledger.skip(t, [row for row in rows if row["origin"] == "slot" and row["new_reason"] in SKIPS])
    finished = [
        Finished(
            row["id"],
            row["job_name"],
            row["target"],
            row["origin"],
            row["new_reason"],
            row["incarnation"],
            row["token"],
            (row["definition_id"], row["definition_version"]),
            row["start_lag"],
            row["wait"],
            row["seconds"],
        )
        for row in rows
    ]
    names = {name for name in ("assign", "resume") if rows and rows[0][name]}
    return Ended(finished, names)


async def release(t: Tx, moves: Sequence[Release]) -> set[int]:
    """live → PENDING, on no executor."""
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
            "first_steps": [m.first_step for m in moves],
            "keeps_limits": [m.keeps_limits for m in moves],
            "results": [m.result_json for m in moves],
        },
    )
    return {row["id"] for row in rows}


async def resume_lost(t: Tx, keys: Sequence[AttemptKey], reporters: Iterable[str]) -> list[int]:
    """PENDING → ORPHANED with the attempt that was lost, for runs of which nothing else has been sent; the ids of those."""
    params = {
        "ids": [key.run_id for key in keys],
        "tokens": [key.token for key in keys],
        "reporters": sorted(reporters),
    }
    return [row["id"] for row in await t.fetch_all(_sql.resume_lost, params)]


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
            "may_run": [m.may_run for m in moves],
            "lost_after": DEFAULT_LOST_AFTER_SECONDS,
        },
    )
    return {row["id"] for row in rows}


async def request_cancel(t: Tx, moves: Sequence[RequestCancel]) -> set[int]:
    """ASSIGNED | RUNNING | WAITING_WORKER → CANCEL_REQUESTED."""
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
            "holds": [m.hold_seconds for m in moves],
        },
    )
    return {row["id"] for row in rows}
