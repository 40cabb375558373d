"""What callers read: jobs, schedules, runs, executors, the cluster. Any coordinator answers; nothing here holds a lock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from toban_coordinator.app.named_objects import not_found
from toban_coordinator.app.paging import FIRST_PAGE, MAX_LIMIT, Page, PageRequest, page_of
from toban_coordinator.app.runs.explain_run import Explanation, explain, why_at_worker, why_waiting
from toban_coordinator.app.runs.job_lists import EVERY_JOB, JobQuery, names_of_page
from toban_coordinator.app.runs.run_queries import RunQuery, run_filter, run_not_found
from toban_coordinator.app.schedules.next_slots import with_next_after_pause
from toban_coordinator.decide.runs.step_states import StepState, attempt_steps, failed_step, step_states
from toban_coordinator.decide.runs.wait_reason import waits_for_executor
from toban_coordinator.store.cluster import read_models
from toban_coordinator.store.definitions import job_lists, jobs
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.runs import orphan_waits, run_lists, run_steps
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import StepResult
from toban_domain.run import TERMINAL, RunState
from toban_runtime.clock import Clock
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit

# A watched run is polled often while it is young, since most runs are short; seconds.
WATCH_SECONDS = 0.2
WATCH_YOUNG_SECONDS = 0.02
YOUNG_POLLS = 50
# Above every version.
NEWEST = (1 << 63) - 1
DEFAULT_DAYS = 90
MAX_DAYS = 366
# Of schedules, in one read.
MAX_NAMES = 100
# Of runs of each kind on each day.
MOST_COUNTED = 100
_AT_WORKER = (RunState.WAITING_WORKER, RunState.CANCEL_REQUESTED)
# A run that is placed ahead stays ASSIGNED until it is sent.
_NOT_SENT = (RunState.PENDING, RunState.DEFERRED, RunState.ASSIGNED)


@dataclass(slots=True)
class JobDetails:
    """A definition with its schedules and newest run. A list with a history has the newest runs and the next slot, too."""

    row: Row
    schedules: list[Row]
    last_run: Row | None = None
    next_run_at: datetime | None = None
    recent_runs: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run with its attempts, events and the results that were kept and not applied. `waiting` says why it waits, "" when it does not.

    `orphaned_until`: when it goes on without the report of the executor that was fenced under it.
    """

    row: Row
    attempts: Sequence[Row]
    events: Sequence[Row]
    orphan_results: Sequence[Row]
    waiting: str = ""
    orphaned_until: datetime | None = None
    # Of a run whose external step is offered or claimed.
    claim: Row | None = None
    steps: Sequence[StepState] = ()
    has_checkpoint: bool = False
    # The index of the step with which a rerun from the failed step begins.
    failed_step: int | None = None
    # By the token of the attempt.
    attempt_steps: Mapping[int, Sequence[StepState]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The leader's row, every coordinator and executor, and how many runs wait and run."""

    leader: Row
    coordinators: Sequence[Row]
    executors: Sequence[Row]
    pending: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReads:
    """What pages and commands read."""

    pool: Pool
    clock: Clock

    async def list_jobs(
        self, page: PageRequest = FIRST_PAGE, *, query: JobQuery = EVERY_JOB
    ) -> tuple[list[JobDetails], str]:
        """Definitions that match, and the next cursor. Raises INVALID_ARGUMENT."""
        async with autocommit(self.pool) as t:
            names, cursor = await names_of_page(t, query, page)
            rows = {row["name"]: row for row in await read_models.jobs_named(t, names)} if names else {}
            details = await _details(t, [rows[name] for name in names if name in rows])
            if query.history and details:
                await _add_history(t, details, query.history)
        return details, cursor

    async def get_job(self, name: str) -> JobDetails:
        """One definition. Raises JOB_NOT_FOUND."""
        async with autocommit(self.pool) as t:
            found = await read_models.jobs_named(t, [name])
            if not found:
                raise await not_found(t, "job", name)
            return (await _details(t, found))[0]

    async def list_versions(self, name: str, page: PageRequest = FIRST_PAGE) -> Page:
        """The definitions that a job has had, newest first. Raises JOB_NOT_FOUND, INVALID_ARGUMENT."""
        limit, below = page.rows, _version_below(page.cursor)
        async with autocommit(self.pool) as t:
            found = await read_models.job_versions(t, name, below=below, limit=limit + 1)
            if not found and not page.cursor:
                raise await not_found(t, "job", name)
        return page_of(found, limit, "version")

    async def job_days(self, name: str, days: int = 0) -> list[Row]:
        """How the runs of a job ended on each of the last days. Raises JOB_NOT_FOUND, INVALID_ARGUMENT."""
        if not 0 <= days <= MAX_DAYS:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"days is {days}; use 1 to {MAX_DAYS}")
        async with autocommit(self.pool) as t:
            now = await jobs.server_now(t)
            today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            since = today - timedelta(days=(days or DEFAULT_DAYS) - 1)
            found = await read_models.job_days(t, name, since=since, until=today, most=MOST_COUNTED)
            if not found and not await read_models.jobs_named(t, [name]):
                raise await not_found(t, "job", name)
        return found

    async def list_schedules(
        self, page: PageRequest = FIRST_PAGE, *, job: str = "", names: Sequence[str] = (), part: str = ""
    ) -> Page:
        """Schedules by name with `part` in it, and only those with these names if there are any; `job` "" = of any job. Raises INVALID_ARGUMENT."""
        if len(names) > MAX_NAMES:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"names: {len(names)} are given, the limit is {MAX_NAMES}")
        limit = page.rows
        async with autocommit(self.pool) as t:
            found = await read_models.schedules_page(
                t, after=page.cursor, jobs=[job] if job else [], names=names, part=part, limit=limit + 1
            )
        return page_of(await with_next_after_pause(found), limit, "name")

    async def list_runs(self, query: RunQuery, page: PageRequest = FIRST_PAGE) -> Page:
        """Runs, newest first, live and finished ones together. Raises INVALID_ARGUMENT; NOT_FOUND for an unknown executor.

        Pages follow the numbers of runs, so none is shown twice or left out; a page is in the order of the runs' times, since runs of
        slots get their numbers ahead.
        """
        limit = page.rows
        async with autocommit(self.pool) as t:
            wanted = await run_filter(t, query, page)
            found = page_of([] if wanted is None else await run_lists.page(t, wanted, brief=query.brief), limit, "id")
        if query.bounded:
            return found
        by_time = sorted(found.rows, key=lambda row: (row["scheduled_for"], row["id"]), reverse=True)
        return Page(by_time, found.next_cursor)

    async def get_run(self, run_id: int, *, waiting: bool = False) -> RunDetails:
        """A run with everything that its page shows; why it waits, and steps that have not begun, only with `waiting`. Raises RUN_NOT_FOUND."""
        async with autocommit(self.pool) as t:
            row = await read_models.run(t, run_id)
            if row is None:
                raise run_not_found(run_id)
            attempts = await read_models.attempts(t, run_id)
            events = await read_models.events(t, run_id)
            orphans = await read_models.orphan_results(t, run_id)
            why = await why_waiting(t, run_id, events) if waiting and row["state"] in _NOT_SENT else ""
            claim = await external_claims.of_run(t, run_id) if row["state"] in _AT_WORKER else None
            why = await why_at_worker(t, run_id) if claim is not None else why
            wait = await orphan_waits.until(t, run_id) if row["state"] == RunState.ORPHANED else None
            # A job that has named no step, and whose run is only watched, costs no statement.
            found = await run_steps.details(t, run_id) if waiting or row["phase"] else None
        details = RunDetails(row, attempts, events, orphans, why, claim=claim)
        if found is not None:
            details = _with_steps(details, found)
        if wait is None:
            return details
        text = waits_for_executor(
            run_id,
            worker_id=wait["worker_id"],
            node_id=wait["node_id"] or "",
            fenced_at=wait["off_at"],
            until=wait["orphaned_until"],
        )
        return replace(details, waiting=text, orphaned_until=wait["orphaned_until"])

    async def explain_run(self, run_id: int) -> Explanation:
        """Why a run waits, was skipped, or is where it is. Raises RUN_NOT_FOUND."""
        async with autocommit(self.pool) as t:
            row = await read_models.run(t, run_id)
            if row is None:
                raise run_not_found(run_id)
            return await explain(t, row, await read_models.events(t, run_id))

    async def watch_run(self, run_id: int) -> AsyncIterator[RunDetails]:
        """The run now and after each change; ends after a terminal state. Raises RUN_NOT_FOUND."""
        seen: tuple[int, str] | None = None
        polls = 0
        while True:
            async with autocommit(self.pool) as t:
                version = await read_models.run_version(t, run_id)
            if version is None:
                raise run_not_found(run_id)
            if version != seen:
                seen = version
                run = await self.get_run(run_id)
                yield run
                if RunState(run.row["state"]) in TERMINAL:
                    return
            polls += 1
            await self.clock.sleep(WATCH_YOUNG_SECONDS if polls < YOUNG_POLLS else WATCH_SECONDS)

    async def list_executors(self, *, include_off: bool) -> list[Row]:
        """Executors by worker id."""
        async with autocommit(self.pool) as t:
            return await read_models.executors(t, include_off=include_off)

    async def cluster(self) -> ClusterState:
        """Who leads, which processes are there, what waits."""
        async with autocommit(self.pool) as t:
            leader = await read_models.leader(t)
            members = await read_models.coordinators(t)
            executors = await read_models.executors(t, include_off=False)
            pending, running = await read_models.counts(t)
        return ClusterState(leader, members, executors, pending, running)


def _version_below(cursor: str) -> int:
    if not cursor:
        return NEWEST
    if not (cursor.isascii() and cursor.isdigit() and int(cursor) <= NEWEST):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"page.cursor {cursor!r} is not from an earlier page")
    return int(cursor)


async def _details(t: Tx, found: Sequence[Row]) -> list[JobDetails]:
    details = {row["name"]: JobDetails(row, []) for row in found}
    if details:
        schedules = await read_models.schedules_page(t, jobs=list(details), limit=MAX_LIMIT)
        for row in await with_next_after_pause(schedules):
            details[row["job"]].schedules.append(row)
        for name, run in (await read_models.last_runs(t, list(details))).items():
            details[name].last_run = run
    return list(details.values())


async def _add_history(t: Tx, found: Sequence[JobDetails], history: int) -> None:
    details = {one.row["name"]: one for one in found}
    for row in await job_lists.recent_runs(t, list(details), history=history):
        details[row["job"]].recent_runs.append(row)
    active = await job_lists.next_runs(t, list(details))
    for name, one in details.items():
        after_pause = [row["next_run_at"] for row in one.schedules if row["resumes_at"] and row["next_run_at"]]
        one.next_run_at = min([*after_pause, *([active[name]] if name in active else [])], default=None)


def _with_steps(run: RunDetails, found: Row) -> RunDetails:
    definition, state = found["definition"] or [], RunState(found["state"])
    return replace(
        run,
        steps=step_states(definition, _started(found["started"]), state, first=found["first_step"]),
        failed_step=failed_step(state, found["ended_at"], len(definition)),
        has_checkpoint=bool(found["has_checkpoint"]),
        attempt_steps={
            row["token"]: attempt_steps(definition, _started(row["steps"]), row["state"]) for row in run.attempts
        },
    )


def _started(stored: Sequence[Mapping[str, Any]] | None) -> list[StepResult]:
    return [StepResult.from_json(step) for step in stored or ()]
