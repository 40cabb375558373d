"""ExecutorGateway: register, heartbeat, confirm continuation, report, settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from toban_coordinator.adapters.ticket_renewal import TicketRenewal
from toban_coordinator.app.cluster.settings_stream import SettingsStreams
from toban_coordinator.app.executors.executor_sessions import ExecutorSessions
from toban_coordinator.app.executors.incarnation_keys import IncarnationKeys
from toban_coordinator.app.runs.continuations import Continuations
from toban_coordinator.app.runs.report_queue import ReportQueue
from toban_coordinator.server.cluster_to_proto import settings_to_pb
from toban_coordinator.server.executor_messages import (
    continuation_to_pb,
    heartbeat_from_pb,
    heartbeat_to_pb,
    introduction_from_pb,
    question_from_pb,
    report_from_pb,
    report_result,
    time_or_none,
)
from toban_domain.incarnation_key import INCARNATION
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import ExecutorGatewayServicer
from toban_transport.convert import key_from_pb
from toban_transport.server import metadata, peer_group
from toban_transport.signed_epoch import EpochSigner, EpochVerifier

Context = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeps:
    """The use cases behind this service."""

    keys: IncarnationKeys
    sessions: ExecutorSessions
    continuations: Continuations
    reports: ReportQueue
    settings: SettingsStreams
    signer: EpochSigner
    verifier: EpochVerifier
    tickets: TicketRenewal


class Gateway(ExecutorGatewayServicer):
    """Any coordinator answers every call."""

    def __init__(self, *, deps: GatewayDeps) -> None:
        self._deps = deps

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.RegisterResponse:
        """Insert a new incarnation and give it its key."""
        intro = introduction_from_pb(request, self._deps.verifier, group=peer_group(context))
        made = await self._deps.sessions.register(intro)
        return pb.RegisterResponse(
            worker_id=made.worker_id,
            incarnation_key=made.key,
            lease_ms=made.lease_ms,
            lease_margin_ms=made.lease_margin_ms,
            heartbeat_interval_seconds=made.heartbeat_interval_seconds,
            epoch=made.epoch,
            signed_epoch=self._deps.signer.sign(made.proof),
            max_jobs_per_worker=made.max_jobs_per_worker,
        )

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        """Grant, and load what the executor has to know."""
        sessions = self._deps.sessions
        # Before the key is looked up: that wait is not the clock's.
        skew = sessions.clock_skew(time_or_none(request.wall_clock))
        incarnation = await self._proven(context, request.incarnation)
        await sessions.finish_orders(incarnation, {item.order_id: item.result for item in request.order_outcomes})
        heartbeat = heartbeat_from_pb(request, incarnation, skew=skew, verifier=self._deps.verifier)
        return heartbeat_to_pb(await sessions.heartbeat(heartbeat), self._deps.signer)

    async def ConfirmContinuation(
        self, request: pb.ConfirmContinuationRequest, context: Context
    ) -> pb.ConfirmContinuationResponse:
        """Relay the question to PostgreSQL; a confirmation is a committed grant."""
        incarnation = await self._proven(context, request.incarnation)
        answer = await self._deps.continuations.ask(question_from_pb(request, incarnation))
        return continuation_to_pb(answer, self._deps.signer)

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportResponse:
        """Commit starts, outcomes and checkpoints."""
        incarnation = await self._proven(context, request.incarnation)
        reports = [report_from_pb(message) for message in request.reports]
        answers = await self._deps.reports.commit(incarnation, reports) if reports else []
        results = [
            report_result(message, committed, keeps_refused=request.keeps_refused)
            for message, committed in zip(request.reports, answers, strict=True)
        ]
        checkpoints = [await self._keep_checkpoint(incarnation, message) for message in request.checkpoints]
        return pb.ReportResponse(results=[result for result in results if result is not None], checkpoints=checkpoints)

    async def _keep_checkpoint(self, incarnation: str, message: pb.Checkpoint) -> pb.CheckpointResult:
        stored = await self._deps.reports.keep_checkpoint(
            key_from_pb(message.key), incarnation, seq=message.seq, value_json=message.value_json
        )
        return pb.CheckpointResult(key=message.key, seq=message.seq, stored=stored)

    async def WatchSettings(
        self, _request: pb.WatchSettingsRequest, context: Context
    ) -> AsyncIterator[pb.WatchSettingsResponse]:
        """The settings now and on each change."""
        await self._proven(context, metadata(context).get(INCARNATION, ""))
        async for settings in self._deps.settings.watch():
            yield settings_to_pb(settings)

    async def RenewLogTickets(self, request: pb.RenewLogTicketsRequest, context: Context) -> pb.RenewLogTicketsResponse:
        """Tickets of earlier incarnations of the caller's instance, for its present key."""
        caller = await self._deps.keys.verified(metadata(context), request.incarnation, group=peer_group(context))
        return pb.RenewLogTicketsResponse(tickets=await self._deps.tickets.renew(caller, request.tickets))

    async def _proven(self, context: Context, claimed: str) -> str:
        """The caller's incarnation, proven by its key and by the group of its certificate."""
        facts = await self._deps.keys.verified(metadata(context), claimed, group=peer_group(context))
        return facts.incarnation
