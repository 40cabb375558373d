"""What jobs say of themselves beside their progress: the steps that they have started, and checkpoints for the next attempt.

Any coordinator writes it; (run, token, incarnation) decides, as for results.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from toban_domain.outcome import AttemptKey, StepResult
from toban_store import array_literals, queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True)
class StepsNote:
    """The steps that an attempt has started, as its executor's incarnation passed them on."""

    key: AttemptKey
    incarnation: str
    steps: tuple[StepResult, ...]


async def note(t: Tx, notes: Sequence[StepsNote]) -> set[int]:
    """Store them, at most one note a run; returns the runs that changed."""
    rows = [
        {
            "id": one.key.run_id,
            "token": one.key.token,
            "incarnation": one.incarnation,
            "steps": [step.to_json() for step in one.steps],
        }
        for one in notes
    ]
    parameters = {
        "notes": json.dumps(rows, separators=(",", ":")),
        "ids": array_literals.numbers(one.key.run_id for one in notes),
    }
    return {row["id"] for row in await t.fetch_all(_sql.note, parameters)}


async def details(t: Tx, run_id: int) -> Row | None:
    """The steps of a run by its definition, and those that its last attempt has started; None when there is no such run."""
    return await t.fetch_one(_sql.details, {"id": run_id})


async def keep_checkpoint(t: Tx, key: AttemptKey, incarnation: str, *, seq: int, value_json: str) -> bool:
    """Store the checkpoint of a live attempt; False when the run has gone on without it."""
    parameters = {
        "id": key.run_id,
        "token": key.token,
        "incarnation": incarnation,
        "seq": seq,
        "value": value_json,
    }
    return await t.fetch_one(_sql.checkpoint, parameters) is not None
