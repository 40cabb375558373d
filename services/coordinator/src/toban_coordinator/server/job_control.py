"""JobControl: apply definitions, start runs, cancel them."""

from __future__ import annotations

from typing import Any

from toban_coordinator.loops.definition_cache import Definitions
from toban_coordinator.loops.payload_validator import Payloads
from toban_coordinator.ports.express import ExpressDesk
from toban_coordinator.server.apply import Apply
from toban_coordinator.server.cancel import CancelRun
from toban_coordinator.server.events import Events
from toban_coordinator.server.job_reader import get_run
from toban_coordinator.server.schedules import Schedules
from toban_coordinator.server.start_runs import StartRuns
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import JobControlServicer
from toban_store.pool import Pool
from toban_transport.server import peer_service

Context = Any


class JobControl(JobControlServicer):
    """Any coordinator answers: none of these is a leader's write."""

    def __init__(self, *, pool: Pool, desk: ExpressDesk) -> None:
        definitions = Definitions()
        self._pool = pool
        self._apply = Apply(pool=pool)
        self._start = StartRuns(pool=pool, definitions=definitions, payloads=Payloads(), desk=desk)
        self._cancel = CancelRun(pool=pool, definitions=definitions)
        self._events = Events(pool=pool)
        self._schedules = Schedules(pool=pool)

    async def Apply(self, request: pb.ApplyRequest, context: Context) -> pb.ApplyResponse:
        """All manifests or none."""
        return await self._apply.apply(request, peer_service(context))

    async def StartRuns(self, request: pb.StartRunsRequest, context: Context) -> pb.StartRunsResponse:
        """All runs or none."""
        return await self._start.start(request, peer_service(context))

    async def CancelRun(self, request: pb.CancelRunRequest, context: Context) -> pb.CancelRunResponse:
        """Canceled at once, or asked to stop."""
        actor = peer_service(context)
        await self._cancel.cancel(request.id, reason=request.reason, mode=request.mode, actor=actor)
        return pb.CancelRunResponse(run=await get_run(self._pool, request.id))

    async def EmitEvent(self, request: pb.EmitEventRequest, context: Context) -> pb.EmitEventResponse:
        """An event, durable when this returns."""
        return await self._events.emit(request, peer_service(context))

    async def DeleteTrigger(self, request: pb.DeleteTriggerRequest, context: Context) -> pb.DeleteTriggerResponse:
        """A trigger is taken away."""
        return await self._events.delete_trigger(request, peer_service(context))

    async def PauseSchedule(self, request: pb.PauseScheduleRequest, context: Context) -> pb.Schedule:
        """No runs of it from now on."""
        return await self._schedules.pause(request, peer_service(context))

    async def ResumeSchedule(self, request: pb.ResumeScheduleRequest, context: Context) -> pb.Schedule:
        """Runs of it again, from the next slot on."""
        return await self._schedules.resume(request, peer_service(context))

    async def DeleteSchedule(self, request: pb.DeleteScheduleRequest, context: Context) -> pb.DeleteScheduleResponse:
        """A schedule is taken away; its ledger stays."""
        return await self._schedules.delete(request, peer_service(context))
