"""What a list of runs is narrowed to, as callers give it and as the store reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from toban_coordinator.app.paging import PageRequest
from toban_coordinator.decide.runs.run_lists import MAX_SEARCHES
from toban_coordinator.store.runs import run_lists, runs
from toban_coordinator.store.runs.run_lists import RunFilter
from toban_domain.concurrency import SCOPES
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import ORIGINS, RunState
from toban_store.tx import Tx

# More jobs than an index is searched for; beyond this a list by label would not name each job in its statement.
MAX_LABELLED = 5000
MAX_RUN_IDS = 500


def run_not_found(run_id: int) -> TobanError:
    """The refusal of a run that there is not, or not any more."""
    hint = "`toban run list` shows the runs that are kept; runs are kept for history_retention_days"
    return TobanError(ErrorCode.RUN_NOT_FOUND, f"there is no run {run_id}; {hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs are listed; empty fields and 0 mean any.

    A `job` that ends in `*` means all jobs of now whose names begin so.
    `executor` is a node, an instance or a worker id. `labels` are those of the present definition of a run's job. A run is in the span of
    time when it was created before `active_until` and had not ended by `active_from`. `brief`: without payload and result.
    `idempotency_key` is the key of one `job`, with which its run was started.
    """

    job: str = ""
    schedule: str = ""
    states: tuple[str, ...] = ()
    worker_id: int = 0
    executor: str = ""
    origin: str = ""
    scope: str = ""
    scope_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    include_ahead: bool = False
    active_from: datetime | None = None
    active_until: datetime | None = None
    run_ids: tuple[int, ...] = ()
    brief: bool = False
    idempotency_key: str = ""

    @property
    def bounded(self) -> bool:
        """Whether a span of time is given."""
        return self.active_from is not None or self.active_until is not None


async def run_filter(t: Tx, query: RunQuery, page: PageRequest) -> RunFilter | None:
    """The filter for one page and one row more; None when no run can match. Raises INVALID_ARGUMENT, NOT_FOUND."""
    _check(query)
    jobs = await _jobs(t, query)
    run_ids = await _runs(t, query)
    if jobs is None or run_ids is None:
        return None
    return RunFilter(
        below=page.below_id,
        limit=page.rows + 1,
        jobs=jobs,
        schedule=query.schedule,
        states=query.states,
        workers=await _workers(t, query),
        origin=query.origin,
        scope=query.scope,
        scope_id=query.scope_id,
        ahead=query.include_ahead,
        active_from=query.active_from,
        active_until=query.active_until,
        run_ids=run_ids,
    )


async def _jobs(t: Tx, query: RunQuery) -> tuple[str, ...] | None:
    """The jobs that the filter names, () for any, None when there is none of them."""
    start = query.job.removesuffix("*") if query.job.endswith("*") else None
    if query.labels:
        job = query.job if start is None else ""
        found = await run_lists.jobs_labelled(t, query.labels, job=job, limit=MAX_LABELLED + 1)
    elif start:
        found = await run_lists.jobs_beginning(t, start, limit=MAX_LABELLED + 1)
    else:
        return (query.job,) if query.job and start is None else ()
    if len(found) > MAX_LABELLED:
        message = f"more than {MAX_LABELLED} jobs have these labels or names; name a job or more labels"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    return tuple(name for name in found if start is None or name.startswith(start)) or None


async def _runs(t: Tx, query: RunQuery) -> tuple[int, ...] | None:
    """The runs that the filter names, () for any, None when there is none of them."""
    if not query.idempotency_key:
        return query.run_ids
    found = set((await runs.by_keys(t, {(query.job, query.idempotency_key)})).values())
    return tuple(found & set(query.run_ids) if query.run_ids else found) or None


async def _workers(t: Tx, query: RunQuery) -> tuple[int, ...]:
    """Of an executor that has restarted very often the newest incarnations."""
    if not query.executor:
        return (query.worker_id,) if query.worker_id else ()
    found = await run_lists.workers_of(t, query.executor, limit=MAX_SEARCHES)
    if not found:
        message = f"there is no executor {query.executor!r}; `toban executor list --all` shows each node and worker id"
        raise TobanError(ErrorCode.NOT_FOUND, message)
    return tuple(found)


def _check(query: RunQuery) -> None:
    if len(query.run_ids) > MAX_RUN_IDS:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"run_ids names {len(query.run_ids)} runs; name at most {MAX_RUN_IDS}"
        )
    for state in query.states:
        _check_choice("state", state, tuple(RunState))
    _check_choice("origin", query.origin, ORIGINS)
    _check_choice("scope", query.scope, SCOPES)
    if query.scope_id and not query.scope:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "scope_id needs a scope: account or user")
    if query.idempotency_key and (not query.job or query.job.endswith("*")):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, "idempotency_key needs the name of its job: keys count for one job"
        )
    if "\0" in query.idempotency_key:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "idempotency_key has a NUL, so no run has it")
    if query.executor and query.worker_id:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "give executor or executor_worker_id, not both")
    if query.active_from and query.active_until and query.active_from > query.active_until:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "active_from is later than active_until")


def _check_choice(kind: str, given: str, choices: tuple[str, ...]) -> None:
    if given and given not in choices:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"there is no {kind} {given!r}; use {', '.join(choices)}")
