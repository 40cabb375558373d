"""Which jobs a list shows, and what it shows of their runs. All of it is read from indexes, so a page costs what it shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from toban_domain.run import FAILURES
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
# Of each of these states so many of the newest runs are looked at.
READ_FAILED = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs; empty fields mean any."""

    part: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    disabled: bool = False
    names: Sequence[str] = ()

    def parameters(self) -> dict[str, object]:
        """As the statements take it."""
        labels = json.dumps(dict(self.labels))
        return {"part": self.part, "labels": labels, "disabled": self.disabled, "names": list(self.names)}


async def by_name(t: Tx, wanted: JobFilter, *, after: str, limit: int) -> list[str]:
    """The names of jobs after a name."""
    parameters = wanted.parameters() | {"after": after, "limit": limit}
    return [row["name"] for row in await t.fetch_all(_sql.by_name, parameters, prepare=False)]


async def by_next_run(t: Tx, wanted: JobFilter, *, after_at: str, after: str, limit: int) -> list[Row]:
    """The names and next runs of jobs after a time ("infinity" = after all of them) and a name."""
    parameters = wanted.parameters() | {"after_at": after_at, "after": after, "limit": limit}
    return await t.fetch_all(_sql.by_next_run, parameters, prepare=False)


async def next_runs(t: Tx, jobs: Sequence[str]) -> dict[str, datetime]:
    """When each of some jobs fires next."""
    return {row["name"]: row["at"] for row in await t.fetch_all(_sql.next_runs, {"jobs": list(jobs)})}


async def recent_runs(t: Tx, jobs: Sequence[str], *, history: int) -> list[Row]:
    """The newest `history` runs of each of some jobs, the newest first."""
    return await t.fetch_all(_sql.recent_runs, {"jobs": list(jobs), "history": history})


async def failing(t: Tx) -> list[str]:
    """The jobs that have not succeeded since a run of them failed."""
    states = list(FAILURES)
    return [row["name"] for row in await t.fetch_all(_sql.failing, {"states": states, "read": READ_FAILED})]
