"""Protobuf messages to the executor's own types and back."""

import json
from base64 import b64decode
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError

from toban_domain.errors import TobanError
from toban_domain.job import DEFAULT_LEASE_LOSS_GRACE_SECONDS
from toban_domain.outcome import AttemptKey, AttemptState
from toban_domain.secret import SecretFile
from toban_domain.settings import Settings
from toban_executor.adapters.step_commands import step_order
from toban_executor.decide.models import CancelOrder, LogRules, Report, StartOrder, StepEnd
from toban_executor.decide.outcome import at, step_result
from toban_executor.ports.coordinator import (
    ContinuationAnswer,
    ContinuationQuestion,
    HeartbeatAnswer,
    HeartbeatRequest,
    RelayedOrder,
    SignedEpoch,
)
from toban_fencing.epoch_gate import Header
from toban_fencing.order_book import StartAnswer
from toban_observability.logs import get_logger
from toban_proto.v1 import common_pb2, coordinator_pb2, executor_pb2
from toban_transport.convert import (
    key_from_pb,
    key_to_pb,
    outcome_from_pb,
    outcome_to_pb,
    progress_to_text,
    state_to_pb,
    step_to_pb,
    timestamp_from_pb,
    timestamp_to_pb,
)

_log = get_logger(__name__)


def header_from_pb(message: executor_pb2.OrderHeader) -> Header:
    """The epoch, serial and incarnation that authorise an order."""
    return Header(message.leader_epoch, message.serial, message.incarnation)


def start_from_pb(message: executor_pb2.StartOrder) -> StartOrder:
    """One attempt to start."""
    slot = timestamp_from_pb(message.slot) if message.HasField("slot") else None
    return StartOrder(
        key=key_from_pb(message.key),
        attempt=message.attempt,
        job_name=message.job_name,
        steps=tuple(step_order(step, allow_shell=message.allow_shell) for step in message.steps),
        payload_json=message.payload_json or "{}",
        env=dict(message.env),
        timeout_seconds=message.timeout_seconds,
        grace_seconds=message.grace_seconds,
        slot=slot.isoformat() if slot else "",
        traceparent=message.traceparent,
        working_dir=message.working_dir,
        allow_shell=message.allow_shell,
        ticket=message.log_ticket.SerializeToString() if message.HasField("log_ticket") else b"",
        logs=LogRules(
            max_bytes=message.logs.max_bytes,
            lines_per_second=message.logs.max_lines_per_second,
            redact=tuple(message.logs.redact),
        ),
        # An older coordinator sends no value of its own.
        on_lease_loss=message.on_lease_loss if message.on_lease_loss in ("freeze", "continue") else "kill",
        lease_loss_grace_seconds=message.lease_loss_grace_seconds
        if message.HasField("lease_loss_grace_seconds")
        else DEFAULT_LEASE_LOSS_GRACE_SECONDS,
        checkpoint_json=message.checkpoint_json,
        result_expected=message.result_expected,
        secrets=tuple(SecretFile(file=one.file, file_env=one.file_env, value=one.value) for one in message.secrets),
        first_step=min(max(0, message.first_step), max(0, len(message.steps) - 1)),
        may_wait=message.may_wait,
        priority=message.priority,
    )


def answer_to_pb(answer: StartAnswer) -> executor_pb2.StartResult:
    """The result of a start order."""
    result = executor_pb2.StartResult(
        key=key_to_pb(answer.key), accepted=not answer.refusal, refusal=answer.refusal, message=answer.message
    )
    if answer.state is not None:
        result.state = state_to_pb(answer.state)
    return result


def cancel_from_pb(message: executor_pb2.CancelOrder) -> CancelOrder:
    """One attempt to end."""
    return CancelOrder(
        key=key_from_pb(message.key),
        mode=message.mode or "kill",
        grace_seconds=message.grace_seconds,
        reason=message.reason,
        force=message.force,
    )


def signed_epoch_from_pb(message: common_pb2.SignedEpoch) -> SignedEpoch | None:
    """What a coordinator signed; None when there is none, or it cannot be read: an older one stays then."""
    try:
        body = common_pb2.SignedEpochBody.FromString(message.body)
    except DecodeError:
        return None
    if not message.signature or not body.epoch:
        return None
    return SignedEpoch(
        epoch=body.epoch,
        incarnation=body.incarnation,
        grant_seq=body.grant_seq,
        message=message.SerializeToString(),
    )


def stored_signed_epoch(stored: bytes) -> SignedEpoch | None:
    """What the journal kept; None for nothing, and for a damaged value, which is logged."""
    signed = _signed_epoch_from_bytes(stored)
    if stored and signed is None:
        _log.error(
            "stored signed epoch is damaged and ignored; the next grant replaces it",
            remedy="check the disk of the state directory; after EPOCH_UNPROVEN run: toban cluster adopt-epoch",
        )
    return signed


def _signed_epoch_from_bytes(message: bytes) -> SignedEpoch | None:
    try:
        return signed_epoch_from_pb(common_pb2.SignedEpoch.FromString(message)) if message else None
    except (DecodeError, TypeError):
        return None


def signed_epoch_of_detail(error: TobanError) -> SignedEpoch | None:
    """What a coordinator signed with an error; None when it has none, or one that cannot be read."""
    try:
        return _signed_epoch_from_bytes(b64decode(str(error.detail.get("signed_epoch", "")), validate=True))
    except ValueError:
        return None


def signed_epoch_to_pb(signed: SignedEpoch | None) -> common_pb2.SignedEpoch | None:
    """As it came from its coordinator."""
    return None if signed is None else common_pb2.SignedEpoch.FromString(signed.message)


def heartbeat_to_pb(request: HeartbeatRequest, incarnation: str) -> coordinator_pb2.HeartbeatRequest:
    """A heartbeat."""
    vitals = request.vitals
    return coordinator_pb2.HeartbeatRequest(
        incarnation=incarnation,
        echo=request.echo,
        nonce=request.nonce,
        epoch_max=request.epoch_max,
        signed_epoch=signed_epoch_to_pb(request.signed_epoch),
        running=len(request.held),
        free_slots=request.free_slots,
        load=request.load,
        labels=dict(request.labels),
        held=[_held_to_pb(key, state, request) for key, state in request.held],
        order_outcomes=[
            coordinator_pb2.OrderOutcome(order_id=number, result=text) for number, text in request.outcomes
        ],
        draining=request.draining,
        stopped=request.stopped,
        settings_version=request.settings_version,
        wall_clock=timestamp_to_pb(vitals.wall_clock) if vitals else None,
        disk_free_bytes=vitals.disk_free_bytes if vitals else 0,
        certificate_not_after=timestamp_to_pb(vitals.certificate_not_after) if vitals else None,
        names_all=request.names_all,
        quarantined_outcomes=request.quarantined_outcomes,
        quarantined_chunks=request.quarantined_chunks,
        processes_unreachable=request.unreachable,
        unanswered=[key_to_pb(key) for key in request.unanswered],
        quarantined=[
            coordinator_pb2.QuarantinedOutcome(key=key_to_pb(key), message=message)
            for key, message in request.quarantined.items()
        ],
    )


def _held_to_pb(key: AttemptKey, state: AttemptState, request: HeartbeatRequest) -> executor_pb2.HeldAttempt:
    progress, note = request.progress.get(key), request.freezes.get(key)
    held = executor_pb2.HeldAttempt(
        key=key_to_pb(key), state=state_to_pb(state), progress_json=progress_to_text(progress)
    )
    if note is not None:
        held.freeze_turns, held.frozen_seconds = note.turns, note.seconds
        held.freeze_turned_at.FromNanoseconds(note.turned_ns)
    if steps := request.steps.get(key):
        held.steps.extend(step_to_pb(step_result(StepEnd._make(step))) for step in json.loads(steps))
    return held


def heartbeat_answer_from_pb(message: coordinator_pb2.HeartbeatResponse) -> HeartbeatAnswer:
    """The answer to a heartbeat."""
    return HeartbeatAnswer(
        granted=message.granted,
        grant_seq=message.grant_seq,
        nonce=message.nonce,
        superseded=message.superseded,
        epoch=message.epoch,
        signed_epoch=signed_epoch_from_pb(message.signed_epoch),
        state=message.state or "on",
        detach_mode=message.detach_mode,
        settings_version=message.settings_version,
        orders=[relayed for order in message.orders if (relayed := relayed_from_pb(order)) is not None],
        not_held=[key_from_pb(key) for key in message.not_held],
        smallest_live=message.smallest_live_token,
        log_archivers=tuple(message.log_archivers),
    )


def continuation_to_pb(question: ContinuationQuestion, incarnation: str) -> coordinator_pb2.ConfirmContinuationRequest:
    """A question about continuation."""
    keys = [key_to_pb(key) for key in question.keys]
    return coordinator_pb2.ConfirmContinuationRequest(
        incarnation=incarnation, echo=question.echo, keys=keys, nonce=question.nonce
    )


def continuation_answer_from_pb(message: coordinator_pb2.ConfirmContinuationResponse) -> ContinuationAnswer:
    """The answer to a question about continuation."""
    return ContinuationAnswer(
        confirmed=message.confirmed,
        grant_seq=message.grant_seq,
        state=message.state or "on",
        refused={key_from_pb(item.key): item.reason for item in message.refused},
        reason=message.reason,
        signed_epoch=signed_epoch_from_pb(message.signed_epoch),
        nonce=message.nonce,
    )


def settings_from_pb(message: coordinator_pb2.WatchSettingsResponse) -> Settings:
    """The settings of a coordinator, perhaps of another release: what this one does not know or allow is left out."""
    return Settings.tolerant({name: _json(text) for name, text in message.values_json.items()}, version=message.version)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def relayed_from_pb(message: coordinator_pb2.OpenOrder) -> RelayedOrder | None:
    """An order of the answer to a heartbeat; None for a kind that this release does not know."""
    kind = message.WhichOneof("order")
    if kind is None:
        return None
    body = getattr(message, kind)
    fields: dict[str, Any] = {"order_id": message.order_id, "header": header_from_pb(body.header)}
    if kind == "cancel":
        fields["cancel"] = [cancel_from_pb(order) for order in body.orders]
    else:
        fields["revoke"] = [key_from_pb(key) for key in body.keys]
    return RelayedOrder(**fields)


@lru_cache(maxsize=256)
def report_to_pb(report: Report) -> coordinator_pb2.AttemptReport:
    """A start or an outcome. It goes to the journal and, soon after, to a coordinator: encoded once; the message is not to be changed."""
    message = coordinator_pb2.AttemptReport(key=key_to_pb(report.key), seq=report.seq, pid=report.pid)
    if report.outcome is not None:
        message.outcome.CopyFrom(outcome_to_pb(report.outcome))
    else:
        started = timestamp_to_pb(at(report.started_ns))
        if started is not None:
            message.started.CopyFrom(started)
    return message


def report_from_pb(message: coordinator_pb2.AttemptReport) -> Report:
    """A start or an outcome, as the journal kept it."""
    started = timestamp_from_pb(message.started) if message.HasField("started") else None
    return Report(
        key=key_from_pb(message.key),
        seq=message.seq,
        started_ns=_nanoseconds(started) if started else 0,
        outcome=outcome_from_pb(message.outcome) if message.HasField("outcome") else None,
        pid=message.pid,
    )


def report_to_bytes(report: Report) -> bytes:
    """A report for the journal."""
    return report_to_pb(report).SerializeToString()


def report_from_bytes(body: bytes) -> Report:
    """A report of the journal."""
    return report_from_pb(coordinator_pb2.AttemptReport.FromString(body))


def keys_from_pb(messages: "Any") -> list[AttemptKey]:
    """Several keys."""
    return [key_from_pb(message) for message in messages]


def ticket_from_bytes(body: bytes) -> common_pb2.LogTicket:
    """A log ticket as it came with its order."""
    return common_pb2.LogTicket.FromString(body)


def key_of_ticket(ticket: common_pb2.LogTicket) -> bytes:
    """The hash of the key that a log ticket asks for; empty for one that asks for none, or cannot be read."""
    try:
        return common_pb2.LogTicketBody.FromString(ticket.body).key_hash
    except DecodeError:
        return b""


def _nanoseconds(moment: datetime) -> int:
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 10**9 + delta.microseconds * 1000
