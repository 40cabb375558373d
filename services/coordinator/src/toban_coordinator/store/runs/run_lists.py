"""Pages of runs, live and finished ones, by the index that the filter fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from toban_coordinator.decide.runs.run_lists import COVERED, Driver, driver_of, looks_at
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
# A run is visible this long after its `created_at` at the latest: transactions are far shorter.
COMMIT_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs a page shows; empty fields mean any. `below` is the cursor: ids smaller than it.

    `jobs` and `workers` name all that are wanted. `ahead` adds runs whose time has not come. `active_from` and `active_until` leave out runs
    that ended before or were made later.
    """

    below: int
    limit: int
    jobs: tuple[str, ...] = ()
    schedule: str = ""
    states: tuple[str, ...] = ()
    workers: tuple[int, ...] = ()
    origin: str = ""
    scope: str = ""
    scope_id: str = ""
    ahead: bool = False
    active_from: datetime | None = None
    active_until: datetime | None = None
    run_ids: tuple[int, ...] = ()

    @property
    def driver(self) -> Driver:
        """The index for the finished ones."""
        if self.run_ids:
            return Driver.ID
        return driver_of(
            schedule=self.schedule,
            scope=self.scope,
            scope_id=self.scope_id,
            jobs=self.jobs,
            states=self.states,
            workers=self.workers,
            origin=self.origin,
        )


async def page(t: Tx, wanted: RunFilter, *, brief: bool = False) -> list[Row]:
    """Runs, newest first; `brief` leaves payload and result empty."""
    newest = await ids(t, wanted)
    return await t.fetch_all(_sql.brief_runs if brief else _sql.runs, {"ids": newest}) if newest else []


async def ids(t: Tx, wanted: RunFilter) -> list[int]:
    """The numbers of runs, newest first."""
    below = wanted.below
    if wanted.active_until is not None:
        below = min(below, await first_id_since(t, wanted.active_until + COMMIT_WITHIN))
    live, finished = looks_at(wanted.states)
    # Live ones first: a run that ends in between is found twice, and not left out.
    found = await _ids(t, "live", parameters_of(wanted, None) | {"below": below}) if live else set()
    found |= (
        await _ids(t, wanted.driver, parameters_of(wanted, wanted.driver) | {"below": below}) if finished else set()
    )
    return sorted(found, reverse=True)[: wanted.limit]


def parameters_of(wanted: RunFilter, driver: Driver | None) -> dict[str, Any]:
    """A filter as the statement of `driver` takes it; None: the one for live runs."""
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(wanted).items()}
    if driver is None:
        return given
    covered = COVERED[driver]
    searched = {f"by_{name}": given[name] for name in covered}
    return given | searched | {name: type(given[name])() for name in covered}


async def first_id_since(t: Tx, at: datetime) -> int:
    """An id below which every run was created before `at`, except those of transactions that were under way."""
    found = await t.fetch_one(_sql.first_id_since, {"at": at})
    assert found is not None
    return int(found["id"])


async def _ids(t: Tx, block: str, parameters: Mapping[str, object]) -> set[int]:
    # Planned for these values: a plan for any would read each row to compare it with filters that are empty.
    rows = await t.fetch_all(getattr(_sql, block), parameters, prepare=False)
    return {row["id"] for row in rows}


async def workers_of(t: Tx, executor: str, *, limit: int) -> list[int]:
    """The worker ids that an executor had, newest first, by its node, instance or a worker id."""
    return [row["worker_id"] for row in await t.fetch_all(_sql.workers_of, {"name": executor, "limit": limit})]


async def jobs_labelled(t: Tx, labels: Mapping[str, str], *, job: str = "", limit: int) -> list[str]:
    """The jobs with all of these labels, or of them the one called `job`."""
    parameters = {"labels": json.dumps(dict(labels)), "job": job, "limit": limit}
    return [row["name"] for row in await t.fetch_all(_sql.jobs_labelled, parameters)]


async def jobs_beginning(t: Tx, start: str, *, limit: int) -> list[str]:
    """The jobs whose names begin with `start`."""
    return [row["name"] for row in await t.fetch_all(_sql.jobs_beginning, {"start": start, "limit": limit})]
