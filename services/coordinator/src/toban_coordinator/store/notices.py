"""What the leader notifies webhooks of while nothing ends: runs that last long or are late, and jobs that do not succeed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toban_store import queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)


async def overdue_runs(t: Tx, *, limit: int) -> list[Row]:
    """Live runs that a rule of their job is about now, at most `limit`."""
    return await t.fetch_all(_sql.overdue_runs, {"limit": limit})


async def add(t: FencedTx, found: Sequence[Row]) -> list[Row]:
    """Adds what `overdue_runs` has found to the outbox, as far as it is still so; what it has added."""
    given = {(row["run_id"], row["target_id"], row["type"]): row for row in found}
    added = await t.fetch_all(_sql.add, {"found": json.dumps(found)})
    return [given[row["run_id"], row["target_id"], row["type"]] for row in added]


async def silent_jobs(t: Tx, *, limit: int) -> list[int]:
    """Definitions of jobs that have been without a success for longer than they expect, at most `limit`."""
    return [row["id"] for row in await t.fetch_all(_sql.silent_jobs, {"limit": limit})]


async def note_silences(t: FencedTx, definitions: Sequence[int]) -> list[Row]:
    """Notes those that have still not succeeded, once until they do, with their events; name, `last_at` and `expected_within_seconds` of each."""
    return await t.fetch_all(_sql.note_silences, {"ids": list(definitions)})


async def any_stale(t: Tx) -> bool:
    """Whether there are silences of jobs that expect nothing any more, or have succeeded."""
    row = await t.fetch_one(_sql.any_stale)
    return bool(row and row["found"])


async def drop_silences(t: FencedTx) -> int:
    """Forgets those; how many."""
    return len(await t.fetch_all(_sql.drop_silences))


async def remember_successes(t: FencedTx) -> None:
    """Keeps the last successes of jobs that expect one for longer than their runs: to be called before runs are removed."""
    await t.execute(_sql.remember_successes)
