"""What pages and commands show of runs, jobs, schedules and the cluster. Nothing here is on the path of a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
# A coordinator that was not seen for this long and was not stopped counts as lost, seconds.
LOST_AFTER_SECONDS = 5.0


async def run(t: Tx, run_id: int) -> Row | None:
    """One run; None when there is none of this id."""
    return await t.fetch_one(_sql.run, {"id": run_id})


async def place(t: Tx, run_id: int) -> Row | None:
    """The token of a run, and worker id, incarnation and address of the executor that runs it, None where none does; None for no run."""
    return await t.fetch_one(_sql.place, {"id": run_id})


async def definition_of(t: Tx, run_id: int) -> tuple[int, int] | None:
    """The id and the version of the definition that a run was made from."""
    row = await t.fetch_one(_sql.definition_of, {"id": run_id})
    return (row["definition_id"], row["definition_version"]) if row else None


async def run_version(t: Tx, run_id: int) -> tuple[int, str] | None:
    """Version and state of a run: they change with everything that a page shows."""
    row = await t.fetch_one(_sql.run_version, {"id": run_id})
    return None if row is None else (row["version"], row["state"])


async def attempts(t: Tx, run_id: int) -> list[Row]:
    """The dispatches of a run."""
    return await t.fetch_all(_sql.attempts, {"id": run_id})


async def events(t: Tx, run_id: int) -> list[Row]:
    """The events of a run."""
    return await t.fetch_all(_sql.events, {"id": run_id})


async def orphan_results(t: Tx, run_id: int) -> list[Row]:
    """The results that were kept and not applied."""
    return await t.fetch_all(_sql.orphan_results, {"id": run_id})


async def last_runs(t: Tx, jobs: Sequence[str]) -> dict[str, Row]:
    """The newest run of each job that has one whose time has come."""
    rows = await t.fetch_all(_sql.last_runs, {"jobs": list(jobs)})
    return {row["job_name"]: row for row in rows}


async def jobs_named(t: Tx, names: Sequence[str]) -> list[Row]:
    """The definitions with some names, in any order."""
    return await t.fetch_all(_sql.jobs_named, {"names": list(names)})


async def job_versions(t: Tx, name: str, *, below: int, limit: int) -> list[Row]:
    """The definitions of a job below a version, newest first."""
    return await t.fetch_all(_sql.job_versions, {"name": name, "below": below, "limit": limit})


async def job_days(t: Tx, name: str, *, since: datetime, until: datetime, most: int) -> list[Row]:
    """Runs of a job that ended well, badly or otherwise on each day of UTC from `since` on, at most `most` of each; no row for none."""
    return await t.fetch_all(_sql.job_days, {"name": name, "since": since, "until": until, "most": most})


async def schedules_page(
    t: Tx, *, after: str = "", jobs: Sequence[str] = (), names: Sequence[str] = (), part: str = "", limit: int
) -> list[Row]:
    """Schedules by name, of some jobs or of all, with some names or with `part` in them; no jobs and no names = any."""
    parameters = {"after": after, "jobs": list(jobs), "names": list(names), "part": part, "limit": limit}
    return await t.fetch_all(_sql.schedules_page, parameters)


async def executors(t: Tx, *, include_off: bool, worker_id: int = 0) -> list[Row]:
    """Executors by worker id; only that one when `worker_id` is given."""
    return await t.fetch_all(_sql.executors, {"include_off": include_off, "worker_id": worker_id})


async def leader(t: Tx) -> Row:
    """The leader row with its beat."""
    row = await t.fetch_one(_sql.leader)
    assert row is not None
    return row


async def coordinators(t: Tx) -> list[Row]:
    """Coordinators of the last day."""
    return await t.fetch_all(_sql.coordinators, {"lost_after": LOST_AFTER_SECONDS})


async def counts(t: Tx) -> tuple[int, int]:
    """(runs that wait, runs on executors)."""
    row = await t.fetch_one(_sql.counts)
    return (row["pending"], row["running"]) if row else (0, 0)
