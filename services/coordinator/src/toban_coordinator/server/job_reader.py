"""JobReader: lists, single things, the cluster. Any coordinator answers; nothing here holds a lock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from toban_coordinator.server import to_proto
from toban_coordinator.server.events import Events
from toban_coordinator.server.paging import MAX_LIMIT
from toban_coordinator.server.paging import below as _below
from toban_coordinator.server.paging import limit_of as _limit
from toban_coordinator.server.paging import next_cursor as _next
from toban_coordinator.server.schedules import Schedules
from toban_coordinator.server.start_runs import job_not_found
from toban_coordinator.server.waiting import why_waiting
from toban_coordinator.store import read_models
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import TERMINAL, RunState
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import JobReaderServicer
from toban_runtime.clock import Clock
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit
from toban_transport.convert import timestamp_from_pb, timestamp_to_pb

# A watched run is looked at often while it is young, since most runs are short; seconds.
WATCH_SECONDS = 0.2
WATCH_YOUNG_SECONDS = 0.02
YOUNG_LOOKS = 50
# A run that is placed ahead stays ASSIGNED until it is sent.
_NOT_SENT = (RunState.PENDING, RunState.ASSIGNED)
Context = Any


class JobReader(JobReaderServicer):
    """Answers what pages and commands ask. `health` gives the document of /healthz."""

    def __init__(self, *, pool: Pool, clock: Clock, health: Callable[[], dict[str, Any]]) -> None:
        self._pool = pool
        self._clock = clock
        self._health = health
        self._events = Events(pool=pool)
        self._schedules = Schedules(pool=pool)

    async def ListJobs(self, request: pb.ListJobsRequest, _context: Context) -> pb.ListJobsResponse:
        """Definitions by name, each with its schedules and newest run."""
        limit = _limit(request.page)
        async with autocommit(self._pool) as t:
            found = await read_models.jobs_page(t, after=request.page.cursor, limit=limit + 1)
            jobs = await self._with_details(t, found[:limit])
        return pb.ListJobsResponse(jobs=jobs, next_cursor=_next(found, limit, "name"))

    async def GetJob(self, request: pb.GetJobRequest, _context: Context) -> pb.Job:
        """One definition. Raises JOB_NOT_FOUND."""
        async with autocommit(self._pool) as t:
            # The empty name would mean any.
            found = await read_models.jobs_page(t, only=request.name, limit=1) if request.name else []
            if not found:
                raise await job_not_found(t, request.name)
            return (await self._with_details(t, found))[0]

    async def _with_details(self, t: Tx, found: Sequence[Row]) -> list[pb.Job]:
        jobs = {row["name"]: to_proto.job_to_pb(row) for row in found}
        if jobs:
            for row in await read_models.schedules_page(t, jobs=list(jobs), limit=MAX_LIMIT):
                jobs[row["job"]].schedules.append(to_proto.schedule_to_pb(row))
            for name, run in (await read_models.last_runs(t, list(jobs))).items():
                jobs[name].last_run.CopyFrom(to_proto.run_to_pb(run))
        return list(jobs.values())

    async def ListSchedules(self, request: pb.ListSchedulesRequest, _context: Context) -> pb.ListSchedulesResponse:
        """Schedules by name."""
        limit = _limit(request.page)
        jobs = [request.job] if request.job else []
        async with autocommit(self._pool) as t:
            found = await read_models.schedules_page(t, after=request.page.cursor, jobs=jobs, limit=limit + 1)
        return pb.ListSchedulesResponse(
            schedules=[to_proto.schedule_to_pb(row) for row in found[:limit]], next_cursor=_next(found, limit, "name")
        )

    async def GetSchedule(self, request: pb.GetScheduleRequest, _context: Context) -> pb.Schedule:
        """One schedule. Raises SCHEDULE_NOT_FOUND."""
        return await self._schedules.get(request.name)

    async def NextSlots(self, request: pb.NextSlotsRequest, _context: Context) -> pb.NextSlotsResponse:
        """The next slots of a schedule, stored or not."""
        return await self._schedules.next_slots(request)

    async def ListFires(self, request: pb.ListFiresRequest, _context: Context) -> pb.ListFiresResponse:
        """What became of each due slot, latest first."""
        return await self._schedules.list_fires(request)

    async def ListRuns(self, request: pb.ListRunsRequest, _context: Context) -> pb.ListRunsResponse:
        """Runs, newest first, live and finished ones together; those made ahead only when asked for.

        Pages follow the numbers of runs, so none is shown twice or left out; a page is in the order of the runs' times, since runs of slots
        get their numbers ahead.
        """
        limit = _limit(request.page)
        active = timestamp_from_pb(request.active_from), timestamp_from_pb(request.active_until)
        if any(active) and not request.job:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, "active_from and active_until are for the runs of one job: name it"
            )
        wanted = read_models.RunFilter(
            below=_below(request.page.cursor),
            limit=limit + 1,
            job=request.job,
            schedule=request.schedule,
            states=tuple(_state(name) for name in request.states),
            worker_id=request.executor_worker_id,
            include_ahead=request.include_ahead,
            active_from=active[0],
            active_until=active[1],
        )
        async with autocommit(self._pool) as t:
            found = await read_models.runs_page(t, wanted)
        shown = found[:limit]
        if not any(active):
            shown = sorted(shown, key=lambda row: (row["scheduled_for"], row["id"]), reverse=True)
        return pb.ListRunsResponse(
            runs=[to_proto.run_to_pb(row) for row in shown], next_cursor=_next(found, limit, "id")
        )

    async def GetRun(self, request: pb.GetRunRequest, _context: Context) -> pb.Run:
        """One run with its attempts and events, and why it waits. Raises RUN_NOT_FOUND."""
        return await get_run(self._pool, request.id, waiting=True)

    async def WatchRun(self, request: pb.GetRunRequest, _context: Context) -> AsyncIterator[pb.Run]:
        """The run now and after each change; ends after a terminal state."""
        seen: tuple[int, str] | None = None
        looks = 0
        while True:
            async with autocommit(self._pool) as t:
                version = await read_models.run_version(t, request.id)
            if version is None:
                raise TobanError(ErrorCode.RUN_NOT_FOUND, f"there is no run {request.id}")
            if version != seen:
                seen = version
                run = await get_run(self._pool, request.id)
                yield run
                if RunState(run.state) in TERMINAL:
                    return
            looks += 1
            await self._clock.sleep(WATCH_YOUNG_SECONDS if looks < YOUNG_LOOKS else WATCH_SECONDS)

    async def ListTriggers(self, request: pb.ListTriggersRequest, _context: Context) -> pb.ListTriggersResponse:
        """Triggers by name."""
        return await self._events.list_triggers(request)

    async def ListEvents(self, request: pb.ListEventsRequest, _context: Context) -> pb.ListEventsResponse:
        """Events, newest first."""
        return await self._events.list_events(request)

    async def ListExecutors(self, request: pb.ListExecutorsRequest, _context: Context) -> pb.ListExecutorsResponse:
        """Executors by worker id."""
        async with autocommit(self._pool) as t:
            found = await read_models.executors(t, include_off=request.include_off)
        return pb.ListExecutorsResponse(executors=[to_proto.executor_to_pb(row) for row in found])

    async def GetCluster(self, _request: pb.GetClusterRequest, _context: Context) -> pb.Cluster:
        """Who leads, who is there, what waits."""
        async with autocommit(self._pool) as t:
            leader = await read_models.leader(t)
            members = await read_models.coordinators(t)
            executors = await read_models.executors(t, include_off=False)
            pending, running = await read_models.counts(t)
        leads = None if leader["resigned"] else leader["worker_id"]
        return pb.Cluster(
            epoch=leader["epoch"],
            leader_worker_id=leader["worker_id"] or 0,
            leader_address=leader["address"],
            leader_since=timestamp_to_pb(leader["taken_at"]),
            last_beat_at=timestamp_to_pb(leader["beaten_at"]),
            settled=leader["settled"],
            coordinators=[to_proto.member_to_pb(row, leader_worker_id=leads) for row in members],
            executors=[to_proto.executor_to_pb(row) for row in executors],
            health_json=json.dumps(self._health()),
            pending=pending,
            running=running,
            server_time=timestamp_to_pb(leader["server_time"]),
        )


async def get_run(pool: Pool, run_id: int, *, waiting: bool = False) -> pb.Run:
    """A run with everything that its page shows; why it waits only with `waiting`. Raises RUN_NOT_FOUND."""
    async with autocommit(pool) as t:
        found = await read_models.run(t, run_id)
        if found is None:
            raise TobanError(ErrorCode.RUN_NOT_FOUND, f"there is no run {run_id}")
        run = to_proto.run_to_pb(found)
        run.attempts.extend(to_proto.attempt_to_pb(row) for row in await read_models.attempts(t, run_id))
        events = await read_models.events(t, run_id)
        run.events.extend(to_proto.event_to_pb(row) for row in events)
        run.events.extend(to_proto.orphan_to_event(row) for row in await read_models.orphan_results(t, run_id))
        if waiting and run.state in _NOT_SENT:
            run.waiting = await why_waiting(t, run_id, events)
    return run


def _state(name: str) -> str:
    if name not in RunState.__members__:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"there is no state {name!r}; use {', '.join(RunState)}")
    return name
