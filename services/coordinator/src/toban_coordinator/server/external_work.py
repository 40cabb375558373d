"""ExternalWork: claim, heartbeat, progress, log, complete, fail, acknowledge a cancel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toban_coordinator.app.external.claim_ends import ClaimEnds, EndOfStep
from toban_coordinator.app.external.claim_heartbeats import ClaimHeartbeats
from toban_coordinator.app.external.claim_log import ClaimLog
from toban_coordinator.app.external.claim_names import ClaimTypes, check_claim
from toban_coordinator.app.external.external_claims import ClaimedStep, ExternalClaims
from toban_coordinator.decide.external.claim_log import SentLine
from toban_coordinator.decide.external.external import Answer
from toban_coordinator.server.person_check import granted_worker_type
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import OutcomeKind
from toban_fencing.executor_lease import HOLD_MARGIN
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import ExternalWorkServicer
from toban_transport.authz import worker_type_of
from toban_transport.call_context import peer_name
from toban_transport.convert import key_from_pb, key_to_pb

# What is left of a call's deadline when it stops to wait, for the claim and the answer, seconds.
ANSWER_SECONDS = 1.0
Context = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalWorkDeps:
    """The use cases behind this service."""

    claims: ExternalClaims
    heartbeats: ClaimHeartbeats
    log: ClaimLog
    ends: ClaimEnds
    types: ClaimTypes


class ExternalWork(ExternalWorkServicer):
    """Any coordinator answers every call. A certificate or token that is for one worker type may do nothing with steps of another one."""

    def __init__(self, *, deps: ExternalWorkDeps) -> None:
        self._deps = deps

    async def Claim(self, request: pb.ClaimRequest, context: Context) -> pb.ClaimResponse:
        """Steps of a type, as soon as there are some."""
        check_claim(request.worker_type, only=_only(context))
        left = context.time_remaining()
        wait = request.wait_seconds if left is None else min(request.wait_seconds, max(0.0, left - ANSWER_SECONDS))
        claims = self._deps.claims
        steps = await claims.claim(request.worker, request.worker_type, limit=request.limit, wait_seconds=wait)
        return pb.ClaimResponse(steps=[_step_to_pb(step) for step in steps])

    async def Heartbeat(self, request: pb.ExternalHeartbeatRequest, context: Context) -> pb.ExternalHeartbeatResponse:
        """Extend claims."""
        keys = [key_from_pb(key) for key in request.keys]
        await self._deps.types.check(keys, only=_only(context))
        answer = await self._deps.heartbeats.extend(request.worker, keys)
        return pb.ExternalHeartbeatResponse(lost=map(key_to_pb, answer.lost), cancel=map(key_to_pb, answer.cancel))

    async def UpdateProgress(self, request: pb.UpdateProgressRequest, context: Context) -> pb.UpdateProgressResponse:
        """Show how far a step is."""
        await self._deps.types.check([key_from_pb(request.key)], only=_only(context))
        canceled = await self._deps.heartbeats.progress(
            request.worker, key_from_pb(request.key), percentage=request.percentage, summary=request.summary
        )
        return pb.UpdateProgressResponse(cancel_requested=canceled)

    async def AppendLog(self, request: pb.AppendLogRequest, context: Context) -> pb.AppendLogResponse:
        """Lines of output."""
        key = key_from_pb(request.key)
        await self._deps.types.check([key], only=_only(context))
        lines = [SentLine(line.text, line.stream or "stdout", line.at_unix_ms) for line in request.lines]
        answer = await self._deps.log.append(request.worker, key, first_seq=request.first_seq, lines=lines)
        return pb.AppendLogResponse(last_seq=answer.last_seq, cancel_requested=answer.canceled)

    async def Complete(self, request: pb.CompleteRequest, context: Context) -> pb.CompleteResponse:
        """Steps are done."""
        ends = [
            EndOfStep(key=key_from_pb(step.key), kind=OutcomeKind.SUCCEEDED, result_json=step.result_json)
            for step in request.steps
        ]
        await self._deps.types.check([end.key for end in ends], only=_only(context))
        answers = await self._deps.ends.end(request.worker, ends)
        return pb.CompleteResponse(
            answers=[
                pb.StepAnswer(key=step.key, result=answer.result or "refused", code=answer.code, message=answer.message)
                for step, answer in zip(request.steps, answers, strict=True)
            ]
        )

    async def Fail(self, request: pb.FailRequest, context: Context) -> pb.FailResponse:
        """A step has failed."""
        end = EndOfStep(
            key=key_from_pb(request.key), kind=OutcomeKind.FAILED, error=request.error, retryable=request.retryable
        )
        return pb.FailResponse(result=await self._end(request.worker, end, context))

    async def AcknowledgeCancel(
        self, request: pb.AcknowledgeCancelRequest, context: Context
    ) -> pb.AcknowledgeCancelResponse:
        """A worker has stopped working on a cancelled step."""
        end = EndOfStep(key=key_from_pb(request.key), kind=OutcomeKind.CANCELED, error="cancelled")
        return pb.AcknowledgeCancelResponse(result=await self._end(request.worker, end, context))

    async def _end(self, worker: str, end: EndOfStep, context: Context) -> str:
        """The result of one end. Raises what it is refused with."""
        await self._deps.types.check([end.key], only=_only(context))
        answer: Answer = (await self._deps.ends.end(worker, [end]))[0]
        if not answer.result:
            raise TobanError(ErrorCode(answer.code), answer.message)
        return answer.result


def _only(context: Context) -> str:
    """The one worker type of the caller, by its certificate or its token; "" = any. Raises PERMISSION_DENIED when these differ."""
    certificate, token = worker_type_of(peer_name(context)), granted_worker_type()
    if certificate and token and certificate != token:
        message = (
            f"the certificate is for worker_type {certificate!r} and the token for {token!r}; use those of one type"
        )
        raise TobanError(ErrorCode.PERMISSION_DENIED, message)
    return certificate or token


def _step_to_pb(step: ClaimedStep) -> pb.ClaimedStep:
    message = pb.ClaimedStep(
        key=key_to_pb(step.key),
        step_id=step.step_id,
        payload_json=step.payload,
        lock_ttl_ms=step.lock_ttl_ms,
        lock_margin_ms=int(HOLD_MARGIN * 1000),
        job=step.job,
        step_name=step.step_name,
        attempt=step.attempt,
        timeout_ms=step.timeout_seconds * 1000,
        previous_result_json=step.previous_result,
        result_expected=step.result_expected,
    )
    message.scheduled_for.FromDatetime(step.scheduled_for)
    return message
