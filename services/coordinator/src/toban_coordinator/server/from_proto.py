"""Messages as the arguments of use cases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol, TypedDict

from google.protobuf.message import Message

from toban_coordinator.app.executors.operations_groups import GroupChange
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.paging import PageRequest
from toban_coordinator.app.runs.change_runs import ChangeRequest, Rights
from toban_coordinator.app.runs.run_queries import RunQuery
from toban_coordinator.store.cluster.audit import AuditFilter
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import common_pb2
from toban_proto.v1 import coordinator_pb2 as pb
from toban_transport.convert import timestamp_from_pb, values_of
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


def arguments_of(request: Message, context: Any) -> dict[str, Any]:
    """The fields of the request and the caller, for a use case whose parameters have the same names."""
    return {**values_of(request), "actor": actor_of(context)}


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
    return ManifestText(**values_of(message))


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


def run_query_from_pb(message: pb.ListRunsRequest) -> RunQuery:
    """Which runs are listed. Raises INVALID_ARGUMENT for a time that is none."""
    return RunQuery(worker_id=message.executor_worker_id, **values_of(message, "page", "executor_worker_id"))
