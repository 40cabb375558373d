"""JobReader: lists, single objects, the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from toban_coordinator.app.cluster.overview import Overviews
from toban_coordinator.app.notifications.events import Events
from toban_coordinator.app.runs.job_lists import JobQuery
from toban_coordinator.app.runs.job_reads import JobReads
from toban_coordinator.app.runs.run_counts import CountRuns
from toban_coordinator.app.runs.run_usage import RunUsages
from toban_coordinator.app.schedules.coming_load import ComingLoads
from toban_coordinator.app.schedules.schedules import Schedules
from toban_coordinator.server import cluster_to_proto, to_proto
from toban_coordinator.server.from_proto import after_from_pb, page_from_pb, run_query_from_pb, subject_from_pb
from toban_coordinator.server.limits_to_proto import explanation_to_pb
from toban_coordinator.server.overview_to_proto import overview_to_pb
from toban_coordinator.server.person_check import may_see_every_scope, own_call, run_rights, seen_uses, sees_every_run
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import JobReaderServicer
from toban_proto.v1.logs_pb2 import ArchiveStatusResponse
from toban_runtime.clock import Clock
from toban_transport.convert import usage_to_pb, values_of
from toban_transport.read_ticket import LIFETIME, MAX_RUNS, ReadTicketSigner
from toban_transport.server import actor_of

Context = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReaderDeps:
    """The use cases behind this service. `health` gives the document of /healthz, `archive` the answer of a log-archiver."""

    reads: JobReads
    counts: CountRuns
    events: Events
    schedules: Schedules
    loads: ComingLoads
    overviews: Overviews
    usages: RunUsages
    health: Callable[[], dict[str, Any]]
    archive: Callable[[], Awaitable[ArchiveStatusResponse]]
    signer: ReadTicketSigner
    clock: Clock


class JobReader(JobReaderServicer):
    """Answers what pages and commands ask."""

    def __init__(self, *, deps: JobReaderDeps) -> None:
        self._deps = deps

    async def ListJobs(self, request: pb.ListJobsRequest, _context: Context) -> pb.ListJobsResponse:
        """Definitions, each with its schedules and newest run. Raises INVALID_ARGUMENT, PERMISSION_DENIED."""
        query = JobQuery(**values_of(request, "page"))
        if query.tells_of_runs and not may_see_every_scope():
            message = "failing and the order next_run depend on runs of every scope; your rules name scopes, so leave these out"
            raise TobanError(ErrorCode.PERMISSION_DENIED, message)
        jobs, cursor = await self._deps.reads.list_jobs(page_from_pb(request.page), query=query)
        return pb.ListJobsResponse(jobs=[to_proto.job_details_to_pb(job) for job in jobs], next_cursor=cursor)

    async def GetJob(self, request: pb.GetJobRequest, _context: Context) -> pb.Job:
        """One definition. Raises JOB_NOT_FOUND."""
        return to_proto.job_details_to_pb(await self._deps.reads.get_job(request.name))

    async def ListJobVersions(
        self, request: pb.ListJobVersionsRequest, _context: Context
    ) -> pb.ListJobVersionsResponse:
        """The definitions that a job has had, newest first. Raises JOB_NOT_FOUND."""
        page = await self._deps.reads.list_versions(request.name, page_from_pb(request.page))
        versions = [to_proto.job_version_to_pb(row) for row in page.rows]
        return pb.ListJobVersionsResponse(versions=versions, next_cursor=page.next_cursor)

    async def GetJobDays(self, request: pb.GetJobDaysRequest, _context: Context) -> pb.JobDays:
        """How the runs of a job ended on each of the last days. Raises JOB_NOT_FOUND."""
        return pb.JobDays(
            days=[pb.JobDay(**row) for row in await self._deps.reads.job_days(request.name, request.days)]
        )

    async def ListSchedules(self, request: pb.ListSchedulesRequest, _context: Context) -> pb.ListSchedulesResponse:
        """Schedules by name."""
        page = await self._deps.reads.list_schedules(
            page_from_pb(request.page), job=request.job, names=request.names, part=request.name.replace("\0", "")
        )
        schedules = [to_proto.schedule_to_pb(row) for row in page.rows]
        return pb.ListSchedulesResponse(schedules=schedules, next_cursor=page.next_cursor)

    async def GetSchedule(self, request: pb.GetScheduleRequest, _context: Context) -> pb.Schedule:
        """One schedule. Raises SCHEDULE_NOT_FOUND."""
        return to_proto.schedule_to_pb(await self._deps.schedules.get(request.name))

    async def NextSlots(self, request: pb.NextSlotsRequest, _context: Context) -> pb.NextSlotsResponse:
        """The next slots of a schedule, stored or not."""
        after = after_from_pb(request)
        found = await self._deps.schedules.next_slots(subject_from_pb(request), count=request.count, after=after)
        return pb.NextSlotsResponse(
            slots=to_proto.slots_to_pb(found.slots),
            rule=found.rule,
            timezone=found.timezone,
            note=found.note,
            clock_change=found.clock_change,
        )

    async def GetComingLoad(self, request: pb.GetComingLoadRequest, _context: Context) -> pb.ComingLoad:
        """The slots of each minute of the next day, and what fires in the most crowded ones."""
        return to_proto.load_to_pb(await self._deps.loads.get(**values_of(request), seen=seen_uses))

    async def ListFires(self, request: pb.ListFiresRequest, _context: Context) -> pb.ListFiresResponse:
        """What became of each due slot, latest first."""
        page = await self._deps.schedules.list_fires(request.schedule, page_from_pb(request.page))
        return pb.ListFiresResponse(fires=[to_proto.fire_to_pb(row) for row in page.rows], next_cursor=page.next_cursor)

    async def ListRuns(self, request: pb.ListRunsRequest, _context: Context) -> pb.ListRunsResponse:
        """Runs, newest first, live and finished ones together; those made ahead only when asked for."""
        page = await self._deps.reads.list_runs(run_query_from_pb(request), page_from_pb(request.page))
        return pb.ListRunsResponse(runs=[to_proto.run_to_pb(row) for row in page.rows], next_cursor=page.next_cursor)

    async def CountRuns(self, request: pb.CountRunsRequest, _context: Context) -> pb.RunCounts:
        """How many runs ran, by group and interval. Raises INVALID_ARGUMENT; NOT_FOUND for an unknown executor."""
        if request.filter.HasField("page"):
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "filter.page: counts have no pages; leave it out")
        found = await self._deps.counts.get(
            run_query_from_pb(request.filter),
            by=request.by,
            interval_seconds=request.interval_seconds,
            rights=None if sees_every_run() else run_rights(Action.VIEW),
        )
        return to_proto.run_counts_to_pb(found)

    async def GetRun(self, request: pb.GetRunRequest, _context: Context) -> pb.Run:
        """One run with its attempts and events, and why it waits. Raises RUN_NOT_FOUND."""
        return to_proto.run_details_to_pb(await self._deps.reads.get_run(request.id, waiting=True))

    async def ExplainRun(self, request: pb.GetRunRequest, _context: Context) -> pb.RunExplanation:
        """Why a run waits, was skipped, or is where it is. Raises RUN_NOT_FOUND."""
        return explanation_to_pb(await self._deps.reads.explain_run(request.id))

    async def GetRunUsage(self, request: pb.GetRunRequest, _context: Context) -> pb.RunUsage:
        """What the processes of a run use, asked of its executor. Raises RUN_NOT_FOUND."""
        samples, note = await self._deps.usages.get(request.id)
        return pb.RunUsage(run_id=request.id, samples=map(usage_to_pb, samples), note=note)

    async def WatchRun(self, request: pb.GetRunRequest, _context: Context) -> AsyncIterator[pb.Run]:
        """The run now and after each change; ends after a terminal state."""
        async for run in self._deps.reads.watch_run(request.id):
            yield to_proto.run_details_to_pb(run)

    async def GetReadTicket(self, request: pb.GetReadTicketRequest, context: Context) -> pb.GetReadTicketResponse:
        """For those of the runs that the person may see. Raises INVALID_ARGUMENT, and PERMISSION_DENIED when there is none."""
        wanted = list(dict.fromkeys(request.run_ids))
        if not 0 < len(wanted) <= MAX_RUNS or min(wanted) <= 0:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"run_ids: name 1 to {MAX_RUNS} runs by positive numbers")
        rights = await run_rights(Action.VIEW)(wanted)
        visible = [run for run in wanted if rights.get(run)]
        actor = actor_of(context)
        if not visible:
            runs = f"run {wanted[0]}" if len(wanted) == 1 else "any of these runs"
            message = f"{actor} may not see {runs}, or there is none of that number"
            raise TobanError(ErrorCode.PERMISSION_DENIED, message, detail={"user": own_call().person.name})
        ticket = self._deps.signer.sign(actor=actor, run_ids=visible, now=self._deps.clock.wall())
        return pb.GetReadTicketResponse(ticket=ticket, run_ids=visible, valid_seconds=int(LIFETIME.total_seconds()))

    async def ListTriggers(self, request: pb.ListTriggersRequest, _context: Context) -> pb.ListTriggersResponse:
        """Triggers by name."""
        page = await self._deps.events.list_triggers(
            page_from_pb(request.page), event_type=request.event_type, name=request.name, job=request.job
        )
        triggers = [to_proto.trigger_to_pb(row) for row in page.rows]
        return pb.ListTriggersResponse(triggers=triggers, next_cursor=page.next_cursor)

    async def ListEvents(self, request: pb.ListEventsRequest, _context: Context) -> pb.ListEventsResponse:
        """Events, newest first."""
        page = await self._deps.events.list_events(
            page_from_pb(request.page), event_type=request.event_type, unprocessed=request.unprocessed
        )
        events = [to_proto.inbox_event_to_pb(row) for row in page.rows]
        return pb.ListEventsResponse(events=events, next_cursor=page.next_cursor)

    async def ListExecutors(self, request: pb.ListExecutorsRequest, _context: Context) -> pb.ListExecutorsResponse:
        """Executors by worker id."""
        found = await self._deps.reads.list_executors(include_off=request.include_off)
        return pb.ListExecutorsResponse(executors=[cluster_to_proto.executor_to_pb(row) for row in found])

    async def GetCluster(self, _request: pb.GetClusterRequest, _context: Context) -> pb.Cluster:
        """Who leads, who is there, what waits."""
        return cluster_to_proto.cluster_to_pb(await self._deps.reads.cluster(), self._deps.health())

    async def GetArchive(self, _request: pb.GetArchiveRequest, _context: Context) -> ArchiveStatusResponse:
        """Where the output of each day is. Raises UNAVAILABLE without a log-archiver."""
        return await self._deps.archive()

    async def GetOverview(self, _request: pb.GetOverviewRequest, _context: Context) -> pb.Overview:
        """What needs attention, failures first."""
        return overview_to_pb(await self._deps.overviews.get())
