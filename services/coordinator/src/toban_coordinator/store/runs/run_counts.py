"""How many runs ran in a span of time. Reads only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from toban_coordinator.decide.runs.run_counts import Span
from toban_coordinator.decide.runs.run_lists import Driver
from toban_coordinator.store.runs.run_lists import COMMIT_WITHIN, RunFilter, parameters_of
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
# With rows of their own, those with the most runs.
MOST_GROUPS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """Which runs are counted: those of a filter that ran in a span. `by`: executor or job. At most `most` runs are read."""

    wanted: RunFilter
    by: str
    span: Span
    most: int


@dataclass(frozen=True, slots=True)
class JobScope:
    """What a person's rules decide by: the definition and the scope of runs, of which `run` is one."""

    run: int
    definition_id: int
    scope: str
    scope_id: str


async def counts(t: Tx, what: Counting, seen: Collection[JobScope] | None) -> list[Row] | None:
    """Rows with equal group, state, first and last interval as one, with its `runs`; None when there are too many runs.

    Only runs of the jobs and scopes in `seen`; None = all.
    """
    allowed = list(seen or ())
    restriction = {
        "restricted": seen is not None,
        "seen_definitions": [one.definition_id for one in allowed],
        "seen_scopes": [one.scope for one in allowed],
        "seen_scope_ids": [one.scope_id for one in allowed],
        "groups": MOST_GROUPS,
    }
    # Planned for these values, as a list of runs is.
    rows = await t.fetch_all(_sql.counts, _parameters(what) | restriction, prepare=False)
    return None if rows[0]["total"] > what.most else [row for row in rows if row["name"] is not None]


async def job_scopes(t: Tx, what: Counting) -> list[JobScope] | None:
    """Those of the runs; None when there are too many runs."""
    rows = await t.fetch_all(_sql.job_scopes, _parameters(what), prepare=False)
    if sum(row["runs"] for row in rows) > what.most:
        return None
    return [JobScope(row["run"], row["definition_id"], row["scope"], row["scope_id"]) for row in rows]


async def oldest(t: Tx) -> datetime | None:
    """A time before which no run that is kept had begun; None without runs."""
    found = await t.fetch_one(_sql.oldest)
    return found["at"] - COMMIT_WITHIN if found else None


def _parameters(what: Counting) -> dict[str, Any]:
    span = {"since": what.span.since, "until": what.span.until, "interval": what.span.interval}
    wanted = replace(what.wanted, active_from=what.span.since)
    return parameters_of(wanted, Driver.ID) | span | {"by": what.by, "most": what.most}
