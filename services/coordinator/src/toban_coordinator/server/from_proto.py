"""Messages as the arguments of use cases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol, TypedDict

from toban_coordinator.app.cluster.operations_settings import SettingChange
from toban_coordinator.app.executors.operations_groups import GroupChange
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.paging import PageRequest
from toban_coordinator.app.runs.change_runs import ChangeRequest, Rights
from toban_coordinator.app.runs.rerun import RerunRequest
from toban_coordinator.app.runs.run_queries import RunQuery
from toban_coordinator.app.runs.start_runs import RunRequest
from toban_coordinator.store.cluster.audit import AuditFilter
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import common_pb2
from toban_proto.v1 import coordinator_pb2 as pb
from toban_transport.convert import timestamp_from_pb
from toban_transport.server import actor_of


class Audit(TypedDict):
    """Who changes something, and why: arguments of each use case whose changes are in the audit log."""

    actor: str
    reason: str


class _WithReason(Protocol):
    @property
    def reason(self) -> str: ...


def audit_of(request: _WithReason, context: Any) -> Audit:
    """The caller, and the reason that the request has."""
    return {"actor": actor_of(context), "reason": request.reason}


def group_change_from_pb(request: pb.SetExecutorGroupRequest) -> GroupChange:
    """A group as it is to be."""
    return GroupChange(
        name=request.name,
        labels=dict(request.labels),
        claims=list(request.claims),
        job_labels=dict(request.job_labels) or ({} if request.no_job_labels else None),
        reason=request.reason,
        create=request.create,
        version=request.version,
        instances=list(request.instances),
    )


def page_from_pb(message: common_pb2.Page) -> PageRequest:
    """Which page of a list."""
    return PageRequest(limit=message.limit, cursor=message.cursor)


def audit_filter_from_pb(message: pb.ListAuditRequest) -> AuditFilter:
    """Which rows of the audit."""
    return AuditFilter(
        actor=message.actor.replace("\0", ""),
        action=message.action.replace("\0", ""),
        target=message.target.replace("\0", ""),
        address=message.address.replace("\0", ""),
        since=timestamp_from_pb(message.since),
        until=timestamp_from_pb(message.until),
    )


def manifest_from_pb(message: pb.Manifest) -> ManifestText:
    """One document."""
    expected = message.expect_version if message.HasField("expect_version") else None
    return ManifestText(json=message.json, source=message.source, expect_version=expected)


def subject_from_pb(message: pb.NextSlotsRequest) -> str | ManifestText:
    """The name of a schedule, or a manifest. Raises INVALID_ARGUMENT unless the request has one of them."""
    if message.HasField("manifest") == bool(message.name):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "give the name of a schedule or a manifest: one of them")
    return message.name or manifest_from_pb(message.manifest)


def after_from_pb(message: pb.NextSlotsRequest) -> datetime | None:
    """The time that slots come after; None = now. The zero timestamp is a time here, although it means "unset" elsewhere."""
    if not message.HasField("after"):
        return None
    return timestamp_from_pb(message.after) or datetime(1970, 1, 1, tzinfo=UTC)


def run_request_from_pb(message: pb.StartRunRequest) -> RunRequest:
    """A run on demand. Raises INVALID_ARGUMENT for a time that is none."""
    return RunRequest(
        job=message.job,
        payload_json=message.payload_json,
        scheduled_for=timestamp_from_pb(message.scheduled_for),
        priority=message.priority,
        idempotency_key=message.idempotency_key,
        scope=message.scope,
        scope_id=message.scope_id,
        ignore_limits=message.ignore_limits,
    )


def rerun_from_pb(message: pb.RerunRunRequest) -> RerunRequest:
    """A run to repeat."""
    return RerunRequest(
        run_id=message.id,
        payload_json=message.payload_json,
        replace_payload=message.replace_payload,
        latest_definition=message.latest_definition,
        priority=message.priority,
        scope=message.scope,
        scope_id=message.scope_id,
        idempotency_key=message.idempotency_key,
        reason=message.reason,
    )


def change_request_from_pb(
    message: pb.CancelRunsRequest | pb.RerunRunsRequest, *, actor: str, rights: Rights
) -> ChangeRequest:
    """The runs to change. Raises INVALID_ARGUMENT for a time that is none."""
    return ChangeRequest(
        query=run_query_from_pb(message.filter),
        cursor=message.filter.page.cursor,
        dry_run=message.dry_run,
        reason=message.reason,
        actor=actor,
        rights=rights,
    )


def setting_change_from_pb(message: pb.UpdateSettingRequest) -> SettingChange:
    """A new value of a setting."""
    version = message.version if message.HasField("version") else None
    return SettingChange(name=message.name, value_json=message.value_json, version=version, reason=message.reason)


def run_query_from_pb(message: pb.ListRunsRequest) -> RunQuery:
    """Which runs are listed. Raises INVALID_ARGUMENT for a time that is none."""
    return RunQuery(
        job=message.job,
        schedule=message.schedule,
        states=tuple(message.states),
        worker_id=message.executor_worker_id,
        executor=message.executor,
        origin=message.origin,
        scope=message.scope,
        scope_id=message.scope_id,
        labels=dict(message.labels),
        include_ahead=message.include_ahead,
        active_from=timestamp_from_pb(message.active_from),
        active_until=timestamp_from_pb(message.active_until),
    )
