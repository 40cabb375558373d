"""Freezes and thaws of attempts, as their executors report them. Any coordinator writes them; (run, token, incarnation) decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from toban_domain.outcome import AttemptKey
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import autocommit

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeNote:
    """`turns` counts freezes and thaws of the attempt (odd: it is frozen), `seconds` is the time that it has been frozen in all.

    `turned_at` is the last turn by the executor's clock, None when it names none.
    """

    turns: int
    seconds: float
    turned_at: datetime | None = None


async def note(pool: Pool, incarnation: str, notes: Mapping[AttemptKey, FreezeNote]) -> None:
    """Store them with an event a turn. What is known already, or held by another executor, changes nothing. Raises StoreError."""
    rows = [
        {
            "run_id": key.run_id,
            "token": key.token,
            "turns": one.turns,
            "seconds": one.seconds,
            "turned_at": one.turned_at.isoformat() if one.turned_at else None,
        }
        for key, one in notes.items()
    ]
    parameters = {"notes": json.dumps(rows), "incarnation": incarnation}
    async with autocommit(pool) as t:
        await t.execute(_sql.note, parameters)
