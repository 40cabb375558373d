"""How many runs ran in a span of time. Reads only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_coordinator.decide.runs.run_lists import Driver
from toban_coordinator.store.runs.run_lists import COMMIT_WITHIN, RunFilter, parameters_of
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """Which runs are counted: those of a filter that ran between two times, `interval` in seconds. `by`: executor or job.

    At most `most` runs are read. The `groups` with the most runs have rows of their own.
    """

    wanted: RunFilter
    by: str
    since: datetime
    until: datetime
    interval: int
    most: int
    groups: int


@dataclass(frozen=True, slots=True)
class Use:
    """What a person's rules decide by: the job and scope of runs, of which `run` is one."""

    run: int
    definition_id: int
    scope: str
    scope_id: str


async def counts(t: Tx, what: Counting, seen: Collection[Use] | None) -> list[Row] | None:
    """Rows with equal group, state, first and last interval as one, with its `runs`; None when there are too many runs.

    Only runs of the jobs and scopes in `seen`; None = all.
    """
    allowed = list(seen or ())
    restriction = {
        "restricted": seen is not None,
        "seen_definitions": [use.definition_id for use in allowed],
        "seen_scopes": [use.scope for use in allowed],
        "seen_scope_ids": [use.scope_id for use in allowed],
    }
    # Planned for these values, as a list of runs is.
    rows = await t.fetch_all(_sql.counts, _parameters(what) | restriction, prepare=False)
    return None if rows[0]["total"] > what.most else [row for row in rows if row["name"] is not None]


async def uses(t: Tx, what: Counting) -> list[Use] | None:
    """The jobs and scopes of the runs; None when there are too many runs."""
    rows = await t.fetch_all(_sql.uses, _parameters(what), prepare=False)
    if sum(row["runs"] for row in rows) > what.most:
        return None
    return [Use(row["run"], row["definition_id"], row["scope"], row["scope_id"]) for row in rows]


async def oldest(t: Tx) -> datetime | None:
    """A time before which no run that is kept had begun; None without runs."""
    found = await t.fetch_one(_sql.oldest)
    return found["at"] - COMMIT_WITHIN if found else None


def _parameters(what: Counting) -> dict[str, Any]:
    own = {name: getattr(what, name) for name in ("by", "since", "until", "interval", "most", "groups")}
    return parameters_of(what.wanted, Driver.ID) | own
