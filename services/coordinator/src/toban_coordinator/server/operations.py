"""Operations: what operators change and look up: settings, executors, who leads, and what was done."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from toban_coordinator.server.diagnose import Doctor
from toban_coordinator.server.operations_audit import list_audit
from toban_coordinator.server.operations_executors import ExecutorDesk
from toban_coordinator.server.operations_leader import LeaderDesk
from toban_coordinator.server.operations_settings import SettingsDesk
from toban_domain.errors import TobanError
from toban_observability import metrics
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import OperationsServicer
from toban_store.pool import Pool
from toban_transport.server import peer_service

Context = Any
T = TypeVar("T")
_actions = metrics.counter(
    "toban_admin_actions_total",
    "Operator actions by outcome: ok, or the error code of the refusal.",
    ("action", "outcome"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsDeps:
    """What the desks behind this service are."""

    pool: Pool
    settings: SettingsDesk
    executors: ExecutorDesk
    leader: LeaderDesk
    doctor: Doctor


class Operations(OperationsServicer):
    """Any coordinator answers: none of these is a leader's write. Each change is in the audit log, in its own transaction."""

    def __init__(self, *, deps: OperationsDeps) -> None:
        self._deps = deps

    async def ListSettings(self, _request: pb.ListSettingsRequest, _context: Context) -> pb.ListSettingsResponse:
        """Every setting of this version with its value."""
        return await self._deps.settings.list()

    async def UpdateSetting(self, request: pb.UpdateSettingRequest, context: Context) -> pb.Setting:
        """One setting; every process works with it within two seconds."""
        return await _counted("update_setting", self._deps.settings.update(request, peer_service(context)))

    async def ListAudit(self, request: pb.ListAuditRequest, _context: Context) -> pb.ListAuditResponse:
        """What operators did, newest first."""
        return await list_audit(self._deps.pool, request)

    async def DrainExecutor(self, request: pb.DrainExecutorRequest, context: Context) -> pb.Executor:
        """No new work; what runs goes on."""
        work = self._deps.executors.drain(request.worker_id, reason=request.reason, actor=peer_service(context))
        return await _counted("drain", work)

    async def UndrainExecutor(self, request: pb.UndrainExecutorRequest, context: Context) -> pb.Executor:
        """Work again."""
        work = self._deps.executors.undrain(request.worker_id, reason=request.reason, actor=peer_service(context))
        return await _counted("undrain", work)

    async def DetachExecutor(self, request: pb.DetachExecutorRequest, context: Context) -> pb.Executor:
        """Its runs end, or are let to their end; then the process joins anew."""
        return await _counted("detach", self._deps.executors.detach(request, peer_service(context)))

    async def DemoteLeader(self, request: pb.DemoteLeaderRequest, context: Context) -> pb.DemoteLeaderResponse:
        """Another term, of another coordinator where there is one."""
        return await _counted("demote", self._deps.leader.demote(request, peer_service(context)))

    async def Diagnose(self, _request: pb.DiagnoseRequest, _context: Context) -> pb.Diagnosis:
        """What this coordinator knows about the health of the whole installation."""
        return await self._deps.doctor.diagnose()


async def _counted(action: str, work: Awaitable[T]) -> T:
    try:
        answer = await work
    except TobanError as error:
        _actions.labels(action, error.code.value).inc()
        raise
    _actions.labels(action, "ok").inc()
    return answer
