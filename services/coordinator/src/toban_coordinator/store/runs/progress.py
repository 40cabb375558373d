"""What live runs say of how far they are. Any coordinator writes it; (run, token, incarnation) decides, as for results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from toban_domain.outcome import AttemptKey
from toban_domain.progress import Progress
from toban_store import array_literals, queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """The word of one attempt, as its executor's incarnation passed it on."""

    key: AttemptKey
    incarnation: str
    progress: Progress


async def note(t: Tx, notes: Sequence[ProgressNote]) -> set[int]:
    """Store them, at most one a run; returns the runs that changed. A run that another executor holds by now stays as it is."""
    if not notes:
        return set()
    rows = [
        {
            "id": one.key.run_id,
            "token": one.key.token,
            "incarnation": one.incarnation,
            "progress": one.progress.to_json(),
        }
        for one in notes
    ]
    parameters = {
        "notes": json.dumps(rows, separators=(",", ":")),
        "ids": array_literals.numbers(one.key.run_id for one in notes),
    }
    return {row["id"] for row in await t.fetch_all(_sql.note, parameters)}
