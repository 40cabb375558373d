"""JobControl: apply definitions, start runs, cancel them, edit schedules, emit events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toban_coordinator.app.apply import Apply
from toban_coordinator.app.cancel import CancelRun
from toban_coordinator.app.declare_lost import DeclareLost
from toban_coordinator.app.events import Events
from toban_coordinator.app.job_reads import JobReads
from toban_coordinator.app.schedules import Schedules
from toban_coordinator.app.start_runs import StartRuns
from toban_coordinator.server.from_proto import manifest_from_pb, run_request_from_pb
from toban_coordinator.server.to_proto import applied_to_pb, run_details_to_pb, schedule_to_pb
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import JobControlServicer
from toban_transport.server import peer_service

Context = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobControlDeps:
    """The use cases behind this service."""

    apply: Apply
    start: StartRuns
    cancel: CancelRun
    lost: DeclareLost
    events: Events
    schedules: Schedules
    reads: JobReads


class JobControl(JobControlServicer):
    """Any coordinator answers: none of these is a leader's write."""

    def __init__(self, *, deps: JobControlDeps) -> None:
        self._deps = deps

    async def Apply(self, request: pb.ApplyRequest, context: Context) -> pb.ApplyResponse:
        """All manifests or none."""
        texts = [manifest_from_pb(message) for message in request.manifests]
        applied = await self._deps.apply.apply(texts, dry_run=request.dry_run, actor=peer_service(context))
        return pb.ApplyResponse(applied=[applied_to_pb(one) for one in applied])

    async def StartRuns(self, request: pb.StartRunsRequest, context: Context) -> pb.StartRunsResponse:
        """All runs or none."""
        wanted = [run_request_from_pb(message) for message in request.runs]
        started = await self._deps.start.start(wanted, peer_service(context), reason=request.reason)
        return pb.StartRunsResponse(runs=[pb.StartedRun(run_id=run.run_id, created=run.created) for run in started])

    async def CancelRun(self, request: pb.CancelRunRequest, context: Context) -> pb.CancelRunResponse:
        """Canceled at once, or asked to stop."""
        actor = peer_service(context)
        await self._deps.cancel.cancel(request.id, reason=request.reason, mode=request.mode, actor=actor)
        return pb.CancelRunResponse(run=run_details_to_pb(await self._deps.reads.get_run(request.id)))

    async def DeclareRunLost(self, request: pb.DeclareRunLostRequest, context: Context) -> pb.DeclareRunLostResponse:
        """An ORPHANED run waits no more."""
        await self._deps.lost.declare(request.id, reason=request.reason, actor=peer_service(context))
        return pb.DeclareRunLostResponse(run=run_details_to_pb(await self._deps.reads.get_run(request.id)))

    async def EmitEvent(self, request: pb.EmitEventRequest, context: Context) -> pb.EmitEventResponse:
        """An event, durable when this returns."""
        emitted = await self._deps.events.emit(
            request.event_type,
            payload_json=request.payload_json,
            dedupe_key=request.dedupe_key,
            actor=peer_service(context),
        )
        return pb.EmitEventResponse(event_id=emitted.id, duplicate=emitted.duplicate)

    async def DeleteTrigger(self, request: pb.DeleteTriggerRequest, context: Context) -> pb.DeleteTriggerResponse:
        """Deletes a trigger."""
        await self._deps.events.delete_trigger(request.name, peer_service(context))
        return pb.DeleteTriggerResponse()

    async def PauseSchedule(self, request: pb.PauseScheduleRequest, context: Context) -> pb.Schedule:
        """No runs of it from now on."""
        actor = peer_service(context)
        return schedule_to_pb(await self._deps.schedules.pause(request.name, reason=request.reason, actor=actor))

    async def ResumeSchedule(self, request: pb.ResumeScheduleRequest, context: Context) -> pb.Schedule:
        """Runs of it again, from the next slot on."""
        return schedule_to_pb(await self._deps.schedules.resume(request.name, actor=peer_service(context)))

    async def DeleteSchedule(self, request: pb.DeleteScheduleRequest, context: Context) -> pb.DeleteScheduleResponse:
        """Deletes a schedule; its ledger stays."""
        withdrawn = await self._deps.schedules.delete(request.name, reason=request.reason, actor=peer_service(context))
        return pb.DeleteScheduleResponse(withdrawn_runs=withdrawn)
