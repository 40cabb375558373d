"""JobReader over gRPC, for one request of the site and its person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toban_admin_web.adapters.convert import from_proto
from toban_admin_web.decide.api_rules import SLOW_READS
from toban_admin_web.decide.dashboard import Overview
from toban_admin_web.decide.explanation import RunExplanation
from toban_admin_web.decide.view_models import (
    AuditEntry,
    AuditQuery,
    Cluster,
    Executor,
    Fire,
    Job,
    JobDay,
    JobVersion,
    NextSlots,
    PageOf,
    Run,
    RunQuery,
    Schedule,
)
from toban_admin_web.ports.cluster import ReadTicket
from toban_admin_web.ports.people import Credential
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import Page
from toban_proto.v1.coordinator_pb2_grpc import JobReaderStub, OperationsStub
from toban_runtime.clock import Clock
from toban_transport.convert import timestamp_to_pb
from toban_transport.person_rules import ADDRESS, CREDENTIAL
from toban_transport.replica_client import Fleet

# A coordinator that does not respond within this time is skipped for another one, seconds.
ATTEMPT_SECONDS = 1.5
# A filter with few hits reads the whole audit log, at any coordinator.
AUDIT_SECONDS = SLOW_READS["Operations.ListAudit"]


class ClusterClient:
    """Calls the coordinators; all calls of one instance share `seconds`."""

    def __init__(self, *, coordinators: Fleet, clock: Clock, seconds: float, credential: Credential) -> None:
        self._coordinators = coordinators
        self._metadata = ((CREDENTIAL, credential.secret), (ADDRESS, credential.address))
        self._clock = clock
        self._ends_at = clock.monotonic() + seconds

    def cluster(self) -> Cluster:
        """GetCluster."""
        return from_proto(Cluster, self._call("GetCluster", pb.GetClusterRequest()))

    def overview(self) -> Overview:
        """GetOverview."""
        return from_proto(Overview, self._call("GetOverview", pb.GetOverviewRequest()))

    def executors(self, *, include_off: bool) -> Sequence[Executor]:
        """ListExecutors."""
        response = self._call("ListExecutors", pb.ListExecutorsRequest(include_off=include_off))
        return [from_proto(Executor, item) for item in response.executors]

    def jobs(self, *, cursor: str = "", limit: int = 50, name: str = "") -> PageOf[Job]:
        """ListJobs."""
        response = self._call("ListJobs", pb.ListJobsRequest(page=Page(limit=limit, cursor=cursor), name=name))
        items = tuple(from_proto(Job, item) for item in response.jobs)
        return PageOf(items=items, next_cursor=response.next_cursor)

    def job(self, name: str) -> Job:
        """GetJob."""
        return from_proto(Job, self._call("GetJob", pb.GetJobRequest(name=name)))

    def job_versions(self, name: str, *, cursor: str = "", limit: int = 50) -> PageOf[JobVersion]:
        """ListJobVersions."""
        request = pb.ListJobVersionsRequest(name=name, page=Page(limit=limit, cursor=cursor))
        response = self._call("ListJobVersions", request)
        items = tuple(from_proto(JobVersion, item) for item in response.versions)
        return PageOf(items=items, next_cursor=response.next_cursor)

    def job_days(self, name: str, *, days: int) -> Sequence[JobDay]:
        """GetJobDays."""
        response = self._call("GetJobDays", pb.GetJobDaysRequest(name=name, days=days))
        return [from_proto(JobDay, item) for item in response.days]

    def schedules(self, *, cursor: str = "", limit: int = 50, job: str = "", name: str = "") -> PageOf[Schedule]:
        """ListSchedules."""
        request = pb.ListSchedulesRequest(page=Page(limit=limit, cursor=cursor), job=job, name=name)
        response = self._call("ListSchedules", request)
        items = tuple(from_proto(Schedule, item) for item in response.schedules)
        return PageOf(items=items, next_cursor=response.next_cursor)

    def schedule(self, name: str) -> Schedule:
        """GetSchedule."""
        return from_proto(Schedule, self._call("GetSchedule", pb.GetScheduleRequest(name=name)))

    def next_slots(self, name: str, *, count: int) -> NextSlots:
        """NextSlots."""
        return from_proto(NextSlots, self._call("NextSlots", pb.NextSlotsRequest(name=name, count=count)))

    def fires(self, name: str, *, limit: int) -> Sequence[Fire]:
        """ListFires."""
        response = self._call("ListFires", pb.ListFiresRequest(schedule=name, page=Page(limit=limit)))
        return [from_proto(Fire, item) for item in response.fires]

    def runs(self, query: RunQuery) -> PageOf[Run]:
        """ListRuns."""
        request = pb.ListRunsRequest(
            page=Page(limit=query.limit, cursor=query.cursor),
            job=query.job,
            schedule=query.schedule,
            states=query.states,
            executor=query.executor,
            origin=query.origin,
            scope=query.scope,
            scope_id=query.scope_id,
            labels=dict(query.labels),
            active_from=timestamp_to_pb(query.since),
            active_until=timestamp_to_pb(query.until),
            include_ahead=query.ahead,
        )
        response = self._call("ListRuns", request)
        return PageOf(items=tuple(from_proto(Run, item) for item in response.runs), next_cursor=response.next_cursor)

    def run(self, run_id: int) -> Run:
        """GetRun."""
        return from_proto(Run, self._call("GetRun", pb.GetRunRequest(id=run_id)))

    def explain(self, run_id: int) -> RunExplanation:
        """ExplainRun."""
        return from_proto(RunExplanation, self._call("ExplainRun", pb.GetRunRequest(id=run_id)))

    def read_ticket(self, *run_ids: int) -> ReadTicket:
        """GetReadTicket."""
        return ReadTicket(
            self._call("GetReadTicket", pb.GetReadTicketRequest(run_ids=run_ids)).ticket.SerializeToString()
        )

    def audit(self, query: AuditQuery) -> PageOf[AuditEntry]:
        """ListAudit."""
        request = pb.ListAuditRequest(
            page=Page(cursor=query.cursor),
            actor=query.actor,
            action=query.action,
            target=query.target,
            address=query.address,
        )
        response = self._coordinators.call(
            lambda channel: OperationsStub(channel).ListAudit, request, timeout=AUDIT_SECONDS, metadata=self._metadata
        )
        return PageOf(
            items=tuple(from_proto(AuditEntry, item) for item in response.entries), next_cursor=response.next_cursor
        )

    def _call(self, method: str, request: Any) -> Any:
        remaining = self._ends_at - self._clock.monotonic()
        if remaining <= 0:
            raise TobanError(
                ErrorCode.DEADLINE_EXCEEDED,
                "the coordinators took too long for this page",
                detail={"service": self._coordinators.service, "addresses": list(self._coordinators.addresses)},
            )
        return self._coordinators.call(
            lambda channel: getattr(JobReaderStub(channel), method),
            request,
            timeout=remaining,
            attempt_seconds=min(remaining, ATTEMPT_SECONDS),
            metadata=self._metadata,
        )
