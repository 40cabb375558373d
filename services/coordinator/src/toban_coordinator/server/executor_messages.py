"""Messages of executors as the arguments of use cases, and the answers to them."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from toban_coordinator.adapters.order_messages import header
from toban_coordinator.app.executors.epoch_claims import Presented
from toban_coordinator.app.executors.executor_sessions import (
    MAX_EPOCH,
    MAX_FREEZE_TURNS,
    MAX_FROZEN_SECONDS,
    MAX_SLOTS,
    Heartbeat,
    HeartbeatAnswer,
    Introduction,
)
from toban_coordinator.app.executors.incarnation_keys import secret_hash
from toban_coordinator.app.runs.commit_reports import Committed
from toban_coordinator.app.runs.continuations import Continuation
from toban_coordinator.decide.runs.report import Answer, Report
from toban_coordinator.store.executors import executors
from toban_coordinator.store.executors.freezes import FreezeNote
from toban_coordinator.store.placement.queued_orders import QueuedOrder
from toban_coordinator.store.runs.continuations import Question, Verdict
from toban_coordinator.store.runs.unresolved_attempts import Named
from toban_domain.epoch import EpochProof
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.lease import ExecutorState
from toban_domain.outcome import AttemptKey
from toban_domain.progress import Progress
from toban_proto.v1 import common_pb2
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import executor_pb2 as worker
from toban_proto.v1.common_pb2 import ATTEMPT_STATE_FINISHED
from toban_transport.convert import (
    key_from_pb,
    key_to_pb,
    outcome_from_pb,
    progress_from_text,
    steps_from_pb,
    timestamp_from_pb,
)
from toban_transport.signed_epoch import EpochSigner, EpochVerifier, read

MAX_MESSAGE = 500


def introduction_from_pb(message: pb.RegisterRequest, verifier: EpochVerifier, *, group: str) -> Introduction:
    """A new incarnation; `group` is that of its certificate. Reports that cannot be read do not keep it from its key."""
    reports: list[Report] = []
    reports_error = None
    try:
        reports = [report_from_pb(report) for report in message.reports]
    except TobanError as error:
        reports_error = error
    return Introduction(
        incarnation=message.incarnation,
        instance=message.instance,
        node_id=message.node_id,
        boot_id=message.boot_id,
        pid=message.pid,
        grpc_host=message.grpc_host,
        grpc_port=message.grpc_port,
        labels=dict(message.labels),
        version=message.version,
        epoch_max=message.epoch_max,
        presented=presented_from_pb(message, verifier),
        slots=message.slots,
        ready_slots=message.ready_slots,
        most_slots=message.most_slots,
        previous=message.previous_incarnation if message.previous_verified_empty else "",
        reports=reports,
        reports_error=reports_error,
        secret_hash=secret_hash(message.instance_secret),
        group=group,
        proves_log_key=message.proves_log_key,
        isolation=message.isolation,
        isolation_details=list(message.isolation_details),
    )


def report_from_pb(message: pb.AttemptReport) -> Report:
    """A start or an outcome. Raises INVALID_ARGUMENT when it has neither."""
    key = key_from_pb(message.key)
    if message.WhichOneof("what") == "outcome":
        return Report(key, message.seq, outcome_from_pb(message.outcome))
    started = timestamp_from_pb(message.started)
    if started is None:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"the report of run {key.run_id} has neither a start nor an outcome"
        )
    return Report(key, message.seq, started)


def report_result(message: pb.AttemptReport, committed: Committed, *, keeps_refused: bool) -> pb.ReportResult | None:
    """The answer to one report; None: not stored, and its executor would delete what has an answer."""
    result = pb.ReportResult(key=message.key, seq=message.seq, result=committed.answer.value, message=committed.message)
    if committed.answer is not Answer.NOT_STORED:
        return result
    if not keeps_refused:
        return None
    result.result = Answer.REFUSED.value
    return result


def presented_from_pb(message: pb.RegisterRequest | pb.HeartbeatRequest, verifier: EpochVerifier) -> Presented | None:
    """The signed epoch that came with a call, not verified yet; None for one that cannot be read."""
    if not message.HasField("signed_epoch"):
        return None
    try:
        return Presented(proof=read(message.signed_epoch), verify=lambda: verifier.verify(message.signed_epoch))
    except TobanError:
        return None


def heartbeat_from_pb(
    message: pb.HeartbeatRequest, incarnation: str, *, skew: float | None, verifier: EpochVerifier
) -> Heartbeat:
    """One heartbeat of the verified `incarnation`. Raises INVALID_ARGUMENT for a key that cannot be."""
    held = [key_from_pb(item.key) for item in message.held if item.state != ATTEMPT_STATE_FINISHED]
    return Heartbeat(
        beat=executors.Beat(
            incarnation=incarnation,
            echo=max(0, message.echo),
            nonce=message.nonce,
            free_slots=max(0, min(message.free_slots, MAX_SLOTS)),
            load=message.load if math.isfinite(message.load) else 0.0,
            draining=message.draining,
            quarantined_outcomes=max(0, message.quarantined_outcomes),
            quarantined_chunks=max(0, message.quarantined_chunks),
            unreachable=message.processes_unreachable,
            clock_skew_seconds=skew,
            disk_free_bytes=min(message.disk_free_bytes, MAX_EPOCH) if message.disk_free_bytes > 0 else None,
            certificate_not_after=time_or_none(message.certificate_not_after),
        ),
        epoch_max=message.epoch_max,
        presented=presented_from_pb(message, verifier),
        held=held,
        progress=progress_from_pb(message),
        steps={key_from_pb(item.key): steps_from_pb(item.steps) for item in message.held if item.steps},
        freezes=freezes_from_pb(message),
        stopped=message.stopped,
        witnessed=message.witnessed,
        secret_hash=secret_hash(message.instance_secret),
        named=named_from_pb(message) if message.names_all else None,
    )


def named_from_pb(message: pb.HeartbeatRequest) -> Named:
    """Ended attempts whose outcomes no coordinator has accepted."""
    refused = {key_from_pb(item.key): item.message.replace("\0", "")[:MAX_MESSAGE] for item in message.quarantined}
    return Named(known=[key_from_pb(key) for key in message.unanswered], quarantined=refused)


def progress_from_pb(message: pb.HeartbeatRequest) -> dict[AttemptKey, Progress]:
    """The progress of jobs; what cannot be read is left out."""
    given = ((item.key, progress_from_text(item.progress_json)) for item in message.held if item.progress_json)
    return {key_from_pb(key): progress for key, progress in given if progress is not None}


def freezes_from_pb(message: pb.HeartbeatRequest) -> dict[AttemptKey, FreezeNote]:
    """What has been frozen and thawed; what cannot be is left out."""
    return {
        key_from_pb(item.key): FreezeNote(
            turns=item.freeze_turns, seconds=item.frozen_seconds, turned_at=time_or_none(item.freeze_turned_at)
        )
        for item in message.held
        if 0 < item.freeze_turns <= MAX_FREEZE_TURNS and 0 <= item.frozen_seconds <= MAX_FROZEN_SECONDS
    }


def time_or_none(message: Any) -> datetime | None:
    """The time of a Timestamp; None also for what is none: no grant is lost for what only `toban doctor` looks at."""
    try:
        return timestamp_from_pb(message)
    except TobanError:
        return None


def heartbeat_to_pb(answered: HeartbeatAnswer, signer: EpochSigner) -> pb.HeartbeatResponse:
    """The answer to one heartbeat; a grant is signed."""
    grant, updates = answered.answer.grant, answered.answer.updates
    return pb.HeartbeatResponse(
        granted=grant is not None and grant.granted,
        grant_seq=grant.grant_seq if grant else 0,
        epoch=answered.leader.epoch,
        state=(grant.state if grant else ExecutorState.OFF).value,
        detach_mode=grant.detach_mode if grant else "",
        leader_address=answered.leader.address,
        coordinators=answered.coordinators,
        orders=[open_order(order) for order in updates.orders],
        smallest_live_token=updates.smallest_live_token,
        not_held=[key_to_pb(key) for key in updates.not_held],
        log_archivers=answered.log_archivers,
        settings_version=answered.settings_version,
        signed_epoch=signer.sign(_proof(grant)) if grant is not None and grant.granted else None,
        subleader_address=answered.subleader,
        nonce=grant.nonce if grant is not None and grant.granted else 0,
        superseded=answered.superseded,
    )


def question_from_pb(message: pb.ConfirmContinuationRequest, incarnation: str) -> Question:
    """A question of the verified `incarnation`. Raises INVALID_ARGUMENT for a key that cannot be."""
    keys = [key_from_pb(key) for key in message.keys]
    return Question(incarnation=incarnation, echo=max(0, message.echo), nonce=message.nonce, keys=keys)


def continuation_to_pb(answer: Continuation, signer: EpochSigner) -> pb.ConfirmContinuationResponse:
    """The answer to one question; a confirmation is signed as every grant."""
    verdict = answer.verdict
    return pb.ConfirmContinuationResponse(
        confirmed=verdict.granted,
        grant_seq=verdict.grant_seq,
        reason=answer.why,
        refused=[pb.RefusedContinuation(key=key_to_pb(key), reason=reason) for key, reason in answer.refused.items()],
        state=verdict.state.value,
        signed_epoch=signer.sign(_proof(verdict)) if verdict.granted else None,
        nonce=verdict.nonce,
    )


def _proof(grant: executors.Grant | Verdict) -> EpochProof:
    return EpochProof(
        cluster_id=grant.cluster_id,
        epoch=grant.leader_epoch,
        incarnation=grant.incarnation,
        grant_seq=grant.grant_seq,
        signed_at=grant.granted_at,
        nonce=grant.nonce,
    )


def open_order(order: QueuedOrder) -> pb.OpenOrder:
    """The order with the authority that it was written under. Raises TobanError INTERNAL for a kind that is never queued."""
    authority = header(order.epoch, order.serial, order.incarnation)
    key = common_pb2.AttemptKey(run_id=order.run_id or 0, token=order.token or 0)
    if order.kind == "cancel":
        cancel = worker.CancelOrder(
            key=key,
            mode=str(order.payload.get("mode", "kill")),
            grace_seconds=float(order.payload.get("grace_seconds", 0.0)),
            reason=str(order.payload.get("reason", "")),
            force=bool(order.payload.get("force", False)),
        )
        return pb.OpenOrder(order_id=order.id, cancel=worker.CancelJobRequest(header=authority, orders=[cancel]))
    if order.kind == "revoke":
        return pb.OpenOrder(order_id=order.id, revoke=worker.RevokeRequest(header=authority, keys=[key]))
    raise TobanError(ErrorCode.INTERNAL, f"an order of kind {order.kind!r} is queued (order {order.id})")
