"""Operations: what operators change and look up: settings, executors, who leads, and what was done."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.cluster.audit_verify import verify_part
from toban_coordinator.app.cluster.diagnose import Diagnose
from toban_coordinator.app.cluster.operations_archive import ArchiveOperations
from toban_coordinator.app.cluster.operations_leader import LeaderOperations
from toban_coordinator.app.cluster.operations_settings import SettingChange, SettingsOperations
from toban_coordinator.app.executors.operations_executors import ExecutorOperations
from toban_coordinator.app.executors.operations_groups import GroupOperations
from toban_coordinator.app.limits.breakers import BreakerOperations
from toban_coordinator.app.limits.operations_limits import LimitOperations
from toban_coordinator.app.secrets.operations_secrets import SecretChange, SecretOperations
from toban_coordinator.server.cluster_to_proto import (
    archive_check_to_pb,
    audit_entry_to_pb,
    diagnosis_to_pb,
    executor_to_pb,
    group_to_pb,
    secret_to_pb,
    setting_to_pb,
    verified_to_pb,
)
from toban_coordinator.server.from_proto import (
    arguments_of,
    audit_filter_from_pb,
    audit_of,
    group_change_from_pb,
    page_from_pb,
)
from toban_coordinator.server.limits_to_proto import limit_details_to_pb, limit_to_pb
from toban_domain.errors import TobanError
from toban_observability import metrics
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import OperationsServicer
from toban_store.pool import Pool
from toban_transport.convert import values_of
from toban_transport.server import actor_of

Context = Any
T = TypeVar("T")
_actions = metrics.counter(
    "toban_admin_actions_total",
    "Operator actions by outcome: ok, or the error code of the refusal.",
    ("action", "outcome"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsDeps:
    """The use cases behind this service."""

    pool: Pool
    settings: SettingsOperations
    limits: LimitOperations
    secrets: SecretOperations
    breakers: BreakerOperations
    executors: ExecutorOperations
    groups: GroupOperations
    leader: LeaderOperations
    archive: ArchiveOperations
    diagnose: Diagnose


class Operations(OperationsServicer):
    """Any coordinator answers: none of these is a leader's write. Each change is in the audit log, in its own transaction."""

    def __init__(self, *, deps: OperationsDeps) -> None:
        self._deps = deps

    async def ListSettings(self, _request: pb.ListSettingsRequest, _context: Context) -> pb.ListSettingsResponse:
        """Every setting of this version with its value."""
        states = await self._deps.settings.list()
        return pb.ListSettingsResponse(settings=[setting_to_pb(state) for state in states])

    async def UpdateSetting(self, request: pb.UpdateSettingRequest, context: Context) -> pb.Setting:
        """One setting; every process works with it within two seconds."""
        work = self._deps.settings.update(SettingChange(**values_of(request)), actor_of(context))
        return setting_to_pb(await _counted("update_setting", work))

    async def ListAudit(self, request: pb.ListAuditRequest, _context: Context) -> pb.ListAuditResponse:
        """What operators did, newest first."""
        wanted = audit_filter_from_pb(request)
        page = await list_audit(self._deps.pool, page_from_pb(request.page), wanted, oldest_first=request.oldest_first)
        return pb.ListAuditResponse(entries=[audit_entry_to_pb(row) for row in page.rows], next_cursor=page.next_cursor)

    async def VerifyAudit(self, request: pb.VerifyAuditRequest, _context: Context) -> pb.VerifyAuditResponse:
        """A part of the chain."""
        done = await verify_part(self._deps.pool, cursor=request.cursor, known_head=request.known_head)
        return verified_to_pb(done)

    async def DrainExecutor(self, request: pb.DrainExecutorRequest, context: Context) -> pb.Executor:
        """No new work; what runs goes on."""
        work = self._deps.executors.drain(**arguments_of(request, context))
        return executor_to_pb(await _counted("drain", work))

    async def UndrainExecutor(self, request: pb.UndrainExecutorRequest, context: Context) -> pb.Executor:
        """Work again."""
        work = self._deps.executors.undrain(**arguments_of(request, context))
        return executor_to_pb(await _counted("undrain", work))

    async def DetachExecutor(self, request: pb.DetachExecutorRequest, context: Context) -> pb.Executor:
        """Its runs end, or are let to their end; then the process registers again."""
        work = self._deps.executors.detach(**arguments_of(request, context))
        return executor_to_pb(await _counted("detach", work))

    async def DemoteLeader(self, request: pb.DemoteLeaderRequest, context: Context) -> pb.DemoteLeaderResponse:
        """Another term, of another coordinator where there is one."""
        work = self._deps.leader.demote(**arguments_of(request, context))
        view = await _counted("demote", work)
        return pb.DemoteLeaderResponse(
            new_epoch=view.epoch, leader_worker_id=view.worker_id, leader_address=view.address
        )

    async def RunArchive(self, request: pb.RunArchiveNowRequest, context: Context) -> pb.RunArchiveNowResponse:
        """A pass of the archive begins."""
        await _counted("run_archive", self._deps.archive.run(**arguments_of(request, context)))
        return pb.RunArchiveNowResponse()

    async def VerifyArchive(self, request: pb.VerifyArchiveDayRequest, context: Context) -> pb.VerifyArchiveDayResponse:
        """A part of a day."""
        work = self._deps.archive.verify(**arguments_of(request, context))
        return archive_check_to_pb(await _counted("verify_archive", work))

    async def AdoptEpoch(self, request: pb.AdoptEpochRequest, context: Context) -> pb.AdoptEpochResponse:
        """A generation of epochs above one that an executor cannot prove."""
        work = self._deps.leader.adopt_epoch(**arguments_of(request, context))
        adopted = await _counted("adopt_epoch", work)
        return pb.AdoptEpochResponse(
            epoch_before=adopted.before,
            epoch_after=adopted.after,
            generations_consumed=adopted.generations_consumed,
            generations_left=adopted.generations_left,
        )

    async def ListLimits(self, _request: pb.ListLimitsRequest, _context: Context) -> pb.ListLimitsResponse:
        """Limits, how they are used and what waits for them."""
        return pb.ListLimitsResponse(limits=[limit_to_pb(state) for state in await self._deps.limits.list()])

    async def GetLimit(self, request: pb.GetLimitRequest, _context: Context) -> pb.GetLimitResponse:
        """One limit and its runs."""
        return limit_details_to_pb(await self._deps.limits.get(request.name))

    async def SetLimit(self, request: pb.SetLimitRequest, context: Context) -> pb.SetLimitResponse:
        """Sets or resets a limit; the leader works with it at once."""
        value = None if request.reset else request.limit
        work = self._deps.limits.set(request.name, value, **audit_of(request, context))
        return pb.SetLimitResponse(limit=limit_to_pb(await _counted("set_limit", work)))

    async def SetBreaker(self, request: pb.SetBreakerRequest, context: Context) -> pb.SetBreakerResponse:
        """Opens or closes a breaker; the leader works with it at once."""
        work = self._deps.breakers.open if request.open else self._deps.breakers.close
        action = "open_breaker" if request.open else "close_breaker"
        await _counted(action, work(request.name, **audit_of(request, context)))
        return pb.SetBreakerResponse(limit=limit_to_pb(await self._deps.limits.state(request.name)))

    async def SignalLimit(self, request: pb.SignalLimitRequest, context: Context) -> pb.SignalLimitResponse:
        """Reduces a limit while what it protects is not well."""
        work = self._deps.breakers.signal(**arguments_of(request, context))
        await _counted("signal_limit", work)
        return pb.SignalLimitResponse(limit=limit_to_pb(await self._deps.limits.state(request.name)))

    async def SetSecret(self, request: pb.SetSecretRequest, context: Context) -> pb.Secret:
        """Encrypts and stores a value."""
        change = SecretChange(**values_of(request))
        return secret_to_pb(await _counted("set_secret", self._deps.secrets.set(change, actor_of(context))))

    async def ListSecrets(self, _request: pb.ListSecretsRequest, _context: Context) -> pb.ListSecretsResponse:
        """Names, and who uses them; no value."""
        return pb.ListSecretsResponse(secrets=[secret_to_pb(one) for one in await self._deps.secrets.list()])

    async def RemoveSecret(self, request: pb.RemoveSecretRequest, context: Context) -> pb.RemoveSecretResponse:
        """Deletes a secret."""
        work = self._deps.secrets.remove(**arguments_of(request, context))
        await _counted("remove_secret", work)
        return pb.RemoveSecretResponse()

    async def RotateSecrets(self, request: pb.RotateSecretsRequest, context: Context) -> pb.RotateSecretsResponse:
        """Every secret under the first key."""
        work = self._deps.secrets.rotate(**arguments_of(request, context))
        done = await _counted("rotate_secrets", work)
        return pb.RotateSecretsResponse(rotated=done.rotated, key_id=done.key_id, unreadable=done.unreadable)

    async def ListExecutorGroups(
        self, _request: pb.ListExecutorGroupsRequest, _context: Context
    ) -> pb.ListExecutorGroupsResponse:
        """Groups of executors, by name."""
        return pb.ListExecutorGroupsResponse(groups=[group_to_pb(one) for one in await self._deps.groups.list()])

    async def SetExecutorGroup(self, request: pb.SetExecutorGroupRequest, context: Context) -> pb.ExecutorGroup:
        """Makes or changes a group; executors have its labels at once."""
        work = self._deps.groups.set(group_change_from_pb(request), actor_of(context))
        return group_to_pb(await _counted("set_group", work))

    async def RemoveExecutorGroup(
        self, request: pb.RemoveExecutorGroupRequest, context: Context
    ) -> pb.RemoveExecutorGroupResponse:
        """Deletes a group without executors."""
        work = self._deps.groups.remove(**arguments_of(request, context))
        await _counted("remove_group", work)
        return pb.RemoveExecutorGroupResponse()

    async def Diagnose(self, _request: pb.DiagnoseRequest, _context: Context) -> pb.Diagnosis:
        """What this coordinator knows about the health of the whole installation."""
        return diagnosis_to_pb(await self._deps.diagnose.run())


async def _counted(action: str, work: Awaitable[T]) -> T:
    try:
        answer = await work
    except TobanError as error:
        _actions.labels(action, error.code.value).inc()
        raise
    _actions.labels(action, "ok").inc()
    return answer
