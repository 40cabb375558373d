"""JobControl: apply definitions, start runs, cancel them, edit schedules, emit events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.definitions.delete_job import DeleteJob, DeleteRequest
from toban_coordinator.app.definitions.disable_job import DisableJob
from toban_coordinator.app.notifications.events import Events
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.app.runs.change_runs import ChangeRuns
from toban_coordinator.app.runs.declare_lost import DeclareLost
from toban_coordinator.app.runs.job_reads import JobReads
from toban_coordinator.app.runs.rerun import RerunRequest, RunRepeats
from toban_coordinator.app.runs.start_runs import RunRequest, StartRuns
from toban_coordinator.app.schedules.schedules import Schedules
from toban_coordinator.server.from_proto import (
    arguments_of,
    audit_of,
    change_request_from_pb,
    manifest_from_pb,
)
from toban_coordinator.server.person_check import may_raise_priority, run_rights
from toban_coordinator.server.to_proto import applied_to_pb, changes_to_pb, job_to_pb, run_details_to_pb, schedule_to_pb
from toban_domain.access import Action
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import JobControlServicer
from toban_transport.convert import timestamp_from_pb, values_of
from toban_transport.server import actor_of

Context = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobControlDeps:
    """The use cases behind this service."""

    apply: Apply
    start: StartRuns
    cancel: CancelRun
    repeats: RunRepeats
    changes: ChangeRuns
    jobs: DeleteJob
    switches: DisableJob
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
        applied = await self._deps.apply.apply(
            texts, dry_run=request.dry_run, force=request.force, **audit_of(request, context)
        )
        return pb.ApplyResponse(applied=[applied_to_pb(one) for one in applied])

    async def StartRuns(self, request: pb.StartRunsRequest, context: Context) -> pb.StartRunsResponse:
        """All runs or none."""
        wanted = [RunRequest(**values_of(message)) for message in request.runs]
        started = await self._deps.start.start(wanted, actor_of(context), reason=request.reason)
        return pb.StartRunsResponse(runs=[pb.StartedRun(run_id=run.run_id, created=run.created) for run in started])

    async def CancelRun(self, request: pb.CancelRunRequest, context: Context) -> pb.CancelRunResponse:
        """Cancelled at once, or asked to stop."""
        await self._deps.cancel.cancel(request.id, mode=request.mode, **audit_of(request, context))
        return pb.CancelRunResponse(run=run_details_to_pb(await self._deps.reads.get_run(request.id)))

    async def CancelRuns(self, request: pb.CancelRunsRequest, context: Context) -> pb.ChangeRunsResponse:
        """A part of the runs that a filter names."""
        wanted = change_request_from_pb(request, actor=actor_of(context), rights=run_rights(Action.CANCEL))
        return changes_to_pb(await self._deps.changes.cancel(wanted, mode=request.mode))

    async def RerunRuns(self, request: pb.RerunRunsRequest, context: Context) -> pb.ChangeRunsResponse:
        """A part of the runs that a filter names."""
        wanted = change_request_from_pb(request, actor=actor_of(context), rights=run_rights(Action.RUN))
        done = await self._deps.changes.rerun(
            replace(wanted, raises_priority=may_raise_priority()),
            operation=request.operation,
            latest_definition=request.latest_definition,
            priority=request.priority,
        )
        return changes_to_pb(done)

    async def RerunRun(self, request: pb.RerunRunRequest, context: Context) -> pb.RerunRunResponse:
        """A finished run again."""
        wanted = RerunRequest(run_id=request.id, raises_priority=may_raise_priority(), **values_of(request, "id"))
        started = await self._deps.repeats.rerun(wanted, actor_of(context))
        return pb.RerunRunResponse(run_id=started.run_id, created=started.created)

    async def NoteRun(self, request: pb.NoteRunRequest, context: Context) -> pb.NoteRunResponse:
        """A person's remark about a run."""
        await self._deps.repeats.note(request.id, request.text, actor=actor_of(context))
        return pb.NoteRunResponse()

    async def DeleteJob(self, request: pb.DeleteJobRequest, context: Context) -> pb.DeleteJobResponse:
        """Deletes a job; its runs stay readable."""
        done = await self._deps.jobs.delete(DeleteRequest(**values_of(request)), actor_of(context))
        return pb.DeleteJobResponse(schedules=done.schedules, triggers=done.triggers, canceled_runs=done.canceled)

    async def DisableJob(self, request: pb.DisableJobRequest, context: Context) -> pb.Job:
        """It starts nothing from now on."""
        return job_to_pb(await self._deps.switches.disable(**arguments_of(request, context)))

    async def EnableJob(self, request: pb.EnableJobRequest, context: Context) -> pb.Job:
        """It starts runs again."""
        seen = timestamp_from_pb(request.disabled_at) if request.HasField("disabled_at") else None
        return job_to_pb(await self._deps.switches.enable(request.name, seen=seen, **audit_of(request, context)))

    async def DeclareRunLost(self, request: pb.DeclareRunLostRequest, context: Context) -> pb.DeclareRunLostResponse:
        """Ends the wait of an ORPHANED run."""
        await self._deps.lost.declare(request.id, **audit_of(request, context))
        return pb.DeclareRunLostResponse(run=run_details_to_pb(await self._deps.reads.get_run(request.id)))

    async def EmitEvent(self, request: pb.EmitEventRequest, context: Context) -> pb.EmitEventResponse:
        """An event, durable when this returns."""
        emitted = await self._deps.events.emit(
            request.event_type,
            payload_json=request.payload_json,
            dedupe_key=request.dedupe_key,
            actor=actor_of(context),
        )
        return pb.EmitEventResponse(event_id=emitted.id, duplicate=emitted.duplicate)

    async def DeleteTrigger(self, request: pb.DeleteTriggerRequest, context: Context) -> pb.DeleteTriggerResponse:
        """Deletes a trigger."""
        await self._deps.events.delete_trigger(request.name, actor_of(context))
        return pb.DeleteTriggerResponse()

    async def PauseSchedule(self, request: pb.PauseScheduleRequest, context: Context) -> pb.Schedule:
        """No runs of it from now on."""
        return schedule_to_pb(await self._deps.schedules.pause(**arguments_of(request, context)))

    async def ResumeSchedule(self, request: pb.ResumeScheduleRequest, context: Context) -> pb.Schedule:
        """Runs of it again, from the next slot on."""
        return schedule_to_pb(await self._deps.schedules.resume(**arguments_of(request, context)))

    async def DeleteSchedule(self, request: pb.DeleteScheduleRequest, context: Context) -> pb.DeleteScheduleResponse:
        """Deletes a schedule; its ledger stays."""
        withdrawn = await self._deps.schedules.delete(**arguments_of(request, context))
        return pb.DeleteScheduleResponse(withdrawn_runs=withdrawn)
