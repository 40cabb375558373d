"""Attempts: one row a dispatch, keyed by (run, token), and the results that came too late for theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from toban_coordinator.store.runs.runs_finish import outcome_json
from toban_domain.outcome import AttemptKey, Outcome
from toban_domain.payload import canonical_json
from toban_domain.transitions import CloseAttempt
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt as stored; `outcome` is None until one was accepted for it."""

    state: str
    incarnation: str | None
    outcome: Mapping[str, Any] | None
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt whose log is complete; `last_seq` is None when its executor is off and never reported it."""

    key: AttemptKey
    last_seq: int | None


async def lookup(t: Tx, keys: Sequence[AttemptKey]) -> dict[AttemptKey, AttemptRow]:
    """The attempts of `keys` that exist."""
    rows = await t.fetch_all(_sql.lookup, _keys(keys))
    return {
        AttemptKey(row["run_id"], row["token"]): AttemptRow(
            row["state"], row["incarnation"], row["outcome"], row["worker"]
        )
        for row in rows
    }


async def kept_orphans(t: Tx, keys: Sequence[AttemptKey]) -> dict[AttemptKey, Mapping[str, Any]]:
    """The orphan results of `keys` that are kept already."""
    rows = await t.fetch_all(_sql.orphan_lookup, _keys(keys))
    return {AttemptKey(row["run_id"], row["token"]): row["outcome"] for row in rows}


async def ended(t: Tx, log_day: date, keys: Sequence[AttemptKey], *, off_seconds: float) -> list[EndedAttempt]:
    """Those of `keys` (of one day of dispatch) that have ended; an executor is gone when it has been off for `off_seconds`.

    An attempt that this schema has forgotten, and that no live run holds, has ended too.
    """
    params = {
        "log_day": log_day,
        "run_ids": [key.run_id for key in keys],
        "tokens": [key.token for key in keys],
        "off_seconds": off_seconds,
    }
    rows = await t.fetch_all(_sql.ended, params)
    return [EndedAttempt(AttemptKey(row["run_id"], row["token"]), row["last_seq"]) for row in rows]


async def close(t: Tx, moves: Sequence[CloseAttempt]) -> int:
    """Ends dispatches whose runs go on; one that has an outcome already stays as it is. Answers how many were ended."""
    if not moves:
        return 0
    outcomes = [m.outcome for m in moves]
    return await t.execute(
        _sql.close,
        {
            **_keys([AttemptKey(m.run_id, m.token) for m in moves]),
            "states": [m.state for m in moves],
            "reasons": [m.reason for m in moves],
            "errors": [m.error_summary for m in moves],
            "outcomes": [canonical_json(outcome_json(o)) if o else None for o in outcomes],
            "started": [o.started_at if o else None for o in outcomes],
            "finished": [o.finished_at if o else None for o in outcomes],
            "exit_codes": [o.exit_code if o else None for o in outcomes],
            "signals": [o.signal if o else None for o in outcomes],
            "last_seqs": [o.last_seq if o else None for o in outcomes],
        },
    )


async def keep_orphans(t: Tx, incarnation: str, results: Sequence[tuple[AttemptKey, Outcome]]) -> None:
    """Keeps results that are not accepted any more, for the run's page."""
    if results:
        await t.execute(
            _sql.keep_orphans,
            {
                **_keys([key for key, _ in results]),
                "outcomes": [canonical_json(outcome_json(outcome)) for _, outcome in results],
                "incarnation": incarnation,
            },
        )


def _keys(keys: Sequence[AttemptKey]) -> dict[str, Any]:
    return {"ids": [key.run_id for key in keys], "tokens": [key.token for key in keys]}
