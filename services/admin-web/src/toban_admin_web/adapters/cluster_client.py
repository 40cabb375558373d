"""JobReader over gRPC, for the length of one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toban_admin_web.adapters.convert import record
from toban_admin_web.decide.records import Cluster, Executor, Fire, Job, NextSlot, PageOf, Run, RunQuery, Schedule
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import Page
from toban_proto.v1.coordinator_pb2_grpc import JobReaderStub
from toban_runtime.clock import Clock
from toban_transport.replica_client import Fleet

# A coordinator that stays silent this long is left for another one, seconds.
ATTEMPT_SECONDS = 1.5


class ClusterClient:
    """Asks the coordinators; all calls of one instance together have `seconds`."""

    def __init__(self, *, fleet: Fleet, clock: Clock, seconds: float) -> None:
        self._fleet = fleet
        self._clock = clock
        self._ends_at = clock.monotonic() + seconds

    def cluster(self) -> Cluster:
        """GetCluster."""
        return record(Cluster, self._call("GetCluster", pb.GetClusterRequest()))

    def executors(self, *, include_off: bool) -> Sequence[Executor]:
        """ListExecutors."""
        answer = self._call("ListExecutors", pb.ListExecutorsRequest(include_off=include_off))
        return [record(Executor, item) for item in answer.executors]

    def jobs(self, *, cursor: str = "", limit: int = 50) -> PageOf[Job]:
        """ListJobs."""
        answer = self._call("ListJobs", pb.ListJobsRequest(page=Page(limit=limit, cursor=cursor)))
        return PageOf(items=tuple(record(Job, item) for item in answer.jobs), next_cursor=answer.next_cursor)

    def job(self, name: str) -> Job:
        """GetJob."""
        return record(Job, self._call("GetJob", pb.GetJobRequest(name=name)))

    def schedules(self, *, cursor: str = "", limit: int = 50, job: str = "") -> PageOf[Schedule]:
        """ListSchedules."""
        request = pb.ListSchedulesRequest(page=Page(limit=limit, cursor=cursor), job=job)
        answer = self._call("ListSchedules", request)
        found = tuple(record(Schedule, item) for item in answer.schedules)
        return PageOf(items=found, next_cursor=answer.next_cursor)

    def schedule(self, name: str) -> Schedule:
        """GetSchedule."""
        return record(Schedule, self._call("GetSchedule", pb.GetScheduleRequest(name=name)))

    def next_slots(self, name: str, *, count: int) -> Sequence[NextSlot]:
        """NextSlots."""
        answer = self._call("NextSlots", pb.NextSlotsRequest(name=name, count=count))
        return [record(NextSlot, item) for item in answer.slots]

    def fires(self, name: str, *, limit: int) -> Sequence[Fire]:
        """ListFires."""
        answer = self._call("ListFires", pb.ListFiresRequest(schedule=name, page=Page(limit=limit)))
        return [record(Fire, item) for item in answer.fires]

    def runs(self, query: RunQuery) -> PageOf[Run]:
        """ListRuns."""
        request = pb.ListRunsRequest(
            page=Page(limit=query.limit, cursor=query.cursor),
            job=query.job,
            schedule=query.schedule,
            states=query.states,
            include_ahead=query.ahead,
        )
        answer = self._call("ListRuns", request)
        return PageOf(items=tuple(record(Run, item) for item in answer.runs), next_cursor=answer.next_cursor)

    def run(self, run_id: int) -> Run:
        """GetRun."""
        return record(Run, self._call("GetRun", pb.GetRunRequest(id=run_id)))

    def _call(self, method: str, request: Any) -> Any:
        left = self._ends_at - self._clock.monotonic()
        if left <= 0:
            raise TobanError(
                ErrorCode.DEADLINE_EXCEEDED,
                "the coordinators took too long for this page",
                detail={"service": self._fleet.service, "addresses": list(self._fleet.addresses)},
            )
        return self._fleet.call(
            lambda channel: getattr(JobReaderStub(channel), method),
            request,
            timeout=left,
            attempt_seconds=min(left, ATTEMPT_SECONDS),
        )
