"""What the leader notifies webhooks of while nothing ends: runs that last long or are late, and jobs that do not succeed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toban_store import queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)


async def jobs_with_rules(t: Tx, after: int, limit: int) -> list[int]:
    """Definitions of jobs with rules about late and long runs, behind `after`, at most `limit`."""
    return await _ids(t, _sql.jobs_with_rules, after, limit)


async def expecting_jobs(t: Tx, after: int, limit: int) -> list[int]:
    """Definitions of jobs that are to succeed regularly, behind `after`, at most `limit`."""
    return await _ids(t, _sql.expecting_jobs, after, limit)


async def noted_jobs(t: Tx, after: int, limit: int) -> list[int]:
    """Definitions of jobs whose silence is noted, behind `after`, at most `limit`."""
    return await _ids(t, _sql.noted_jobs, after, limit)


async def overdue_runs(t: Tx, definitions: Sequence[int], *, limit: int) -> list[Row]:
    """Live runs of these jobs that a rule of their job is about now, at most `limit`."""
    return await t.fetch_all(_sql.overdue_runs, {"ids": list(definitions), "limit": limit})


async def add(t: FencedTx, found: Sequence[Row]) -> list[Row]:
    """Adds what `overdue_runs` has found to the outbox, as far as it is still so; what it has added."""
    given = {(row["run_id"], row["target_id"], row["type"]): row for row in found}
    added = await t.fetch_all(_sql.add, {"found": json.dumps(found)})
    return [given[row["run_id"], row["target_id"], row["type"]] for row in added]


async def silent_jobs(t: Tx, definitions: Sequence[int]) -> list[int]:
    """Those of these that have been without a success for longer than they expect, which is not noted yet."""
    return [row["id"] for row in await t.fetch_all(_sql.silent_jobs, {"ids": list(definitions)})]


async def note_silences(t: FencedTx, definitions: Sequence[int]) -> list[Row]:
    """Notes those that have still not succeeded, once until they do, with their events; name, `last_at` and `expected_within_seconds` of each."""
    return await t.fetch_all(_sql.note_silences, {"ids": list(definitions)})


async def any_stale(t: Tx, definitions: Sequence[int]) -> bool:
    """Whether there are silences of those of these that expect nothing any more, or have succeeded."""
    row = await t.fetch_one(_sql.any_stale, {"ids": list(definitions)})
    return bool(row and row["found"])


async def drop_silences(t: FencedTx, definitions: Sequence[int]) -> int:
    """Forgets those; how many."""
    return len(await t.fetch_all(_sql.drop_silences, {"ids": list(definitions)}))


async def remember_successes(t: FencedTx, definitions: Sequence[int]) -> None:
    """Keeps the last successes of those of these that expect one for longer than their runs: to be called for all before runs are removed."""
    await t.execute(_sql.remember_successes, {"ids": list(definitions)})


async def _ids(t: Tx, statement: str, after: int, limit: int) -> list[int]:
    return [row["id"] for row in await t.fetch_all(statement, {"after": after, "limit": limit})]
