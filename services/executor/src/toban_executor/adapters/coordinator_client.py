"""The executor's calls to coordinators (ExecutorGateway)."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from toban_domain.epoch import Epoch
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.incarnation_key import hash_key, key_metadata
from toban_domain.outcome import AttemptKey
from toban_domain.settings import Settings
from toban_executor.adapters.convert import (
    continuation_answer_from_pb,
    continuation_to_pb,
    heartbeat_answer_from_pb,
    heartbeat_to_pb,
    report_to_pb,
    settings_from_pb,
    signed_epoch_from_pb,
    signed_epoch_of_detail,
    signed_epoch_to_pb,
)
from toban_executor.decide.continuation import targets
from toban_executor.decide.models import Report
from toban_executor.decide.unknown_incarnation import UnknownIncarnation
from toban_executor.ports.coordinator import (
    ContinuationAnswer,
    ContinuationQuestion,
    HeartbeatAnswer,
    HeartbeatRequest,
    Identity,
    Registered,
    ReportAnswer,
    SignedEpoch,
    Target,
)
from toban_observability.logs import get_logger
from toban_proto.v1 import coordinator_pb2
from toban_proto.v1.common_pb2 import LogTicket
from toban_proto.v1.coordinator_pb2_grpc import ExecutorGatewayStub
from toban_proto.v1.joining_pb2 import RenewCertificateRequest
from toban_proto.v1.joining_pb2_grpc import CertificateRenewalStub
from toban_runtime.clock import Clock
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream, unary
from toban_transport.convert import key_from_pb, key_to_pb
from toban_transport.replicas import Replicas

REPORT_SECONDS = 5.0
REGISTER_SECONDS = 5.0
# Longer than a coordinator waits for the signer.
RENEW_SECONDS = 10.0
STREAM_SECONDS = 3600.0
MAX_HEARTBEAT_SECONDS = 1.0
# A lease has room for so many calls without an answer: half of them after the last heartbeat that it has time for.
CALLS_PER_LEASE = 6
RENEWED_TICKETS = 200
"""So many log tickets one request may have."""
AVOID_SECONDS = 10.0
"""So long a coordinator that did not answer in time is called last."""

_log = get_logger(__name__)
_TRY_ANOTHER = frozenset(
    {
        ErrorCode.UNAVAILABLE,
        ErrorCode.DEADLINE_EXCEEDED,
        ErrorCode.RESOURCE_EXHAUSTED,
        ErrorCode.INTERNAL,
        ErrorCode.FENCED_OUT,
        ErrorCode.CONFLICT,
        # Its connection may lead to a PostgreSQL that was replaced.
        ErrorCode.EPOCH_UNPROVEN,
        ErrorCode.UNIMPLEMENTED,
        # One coordinator's view may be old: another one is asked before such an answer is believed.
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.INCARNATION_UNKNOWN,
    }
)


def call_seconds(*, lease_ms: int, margin_ms: int) -> float:
    """How long one coordinator may take for a heartbeat before the next one is called: a frozen one costs no lease."""
    return min(MAX_HEARTBEAT_SECONDS, (lease_ms - margin_ms) / 1000 / CALLS_PER_LEASE)


def _check_generation(signed: SignedEpoch | None, held: SignedEpoch | None) -> None:
    """Raises UNAVAILABLE for an answer below the generation that this executor has seen; unsigned ones are of an earlier release."""
    if signed is None or held is None:
        return
    given, known = Epoch.unpack(signed.epoch).generation, Epoch.unpack(held.epoch).generation
    if given < known:
        raise TobanError(
            ErrorCode.UNAVAILABLE,
            f"a coordinator answers in generation {given} of epochs, below {known}: its connection leads to a PostgreSQL that was replaced",
        )


class CoordinatorClient:
    """The gateway of one incarnation. `addresses` are the configured coordinators (host:port)."""

    def __init__(self, *, channels: ChannelPool, addresses: Sequence[str], incarnation: str, clock: Clock) -> None:
        self._replicas = Replicas(
            channels=channels,
            stub=ExecutorGatewayStub,
            service="coordinator",
            addresses=addresses,
            clock=clock,
            unknown="no coordinator is known; set SCHEDULER_COORDINATORS",
            try_another=_TRY_ANOTHER,
            avoid_seconds=AVOID_SECONDS,
        )
        self._renewal = Replicas(
            channels=channels,
            stub=CertificateRenewalStub,
            service="coordinator",
            addresses=addresses,
            clock=clock,
            unknown="no coordinator is known; set SCHEDULER_COORDINATORS",
        )
        self._unknown = UnknownIncarnation()
        self._clock = clock
        self._heartbeat_seconds = MAX_HEARTBEAT_SECONDS
        self._incarnation = incarnation
        # Of calls that prove the incarnation, to log-archivers too, and the hash of its key; empty before the registration.
        self.metadata: tuple[tuple[str, str], ...] = ()
        self.key_hash = b""
        self._subleader = ""

    async def renew_certificate(self, request: bytes) -> tuple[bytes, bytes]:
        """A certificate for the key of the request, with the identity of the present one, and the authorities to trust (both PEM).

        Raises TobanError.
        """
        asked = RenewCertificateRequest(request_pem=request)
        answer = await self._renewal.call(lambda stub: unary(stub.Renew, asked, timeout=RENEW_SECONDS))
        return answer.certificate_pem, answer.authorities_pem

    async def register(
        self, identity: Identity, epoch_max: int, reports: Sequence[Report], signed_epoch: SignedEpoch | None = None
    ) -> Registered:
        """Insert the incarnation, with `reports` of earlier ones; later calls carry the key of the answer. Raises TobanError."""
        request = coordinator_pb2.RegisterRequest(
            incarnation=identity.incarnation,
            instance=identity.instance,
            node_id=identity.node_id,
            boot_id=identity.boot_id,
            pid=identity.pid,
            grpc_host=identity.grpc_host,
            grpc_port=identity.grpc_port,
            slots=identity.slots,
            labels=identity.labels,
            epoch_max=epoch_max,
            signed_epoch=signed_epoch_to_pb(signed_epoch),
            version=identity.version,
            previous_incarnation=identity.previous_incarnation,
            previous_verified_empty=identity.previous_verified_empty,
            most_slots=identity.most_slots,
            ready_slots=identity.ready_slots,
            reports=[report_to_pb(report) for report in reports],
            instance_secret=identity.instance_secret,
            proves_log_key=True,
            isolation=identity.isolation.kind,
            isolation_details=identity.isolation.details,
        )
        answer = await self._replicas.call(lambda stub: unary(stub.Register, request, timeout=REGISTER_SECONDS))
        self.authenticate(answer.incarnation_key)
        self._unknown.lease_seconds = answer.lease_ms / 1000
        # It has the row: another one's denial alone is not believed for a lease.
        self._unknown.note_answer(self._replicas.answered_last, self._clock.monotonic())
        self._heartbeat_seconds = call_seconds(lease_ms=answer.lease_ms, margin_ms=answer.lease_margin_ms)
        return Registered(
            worker_id=answer.worker_id,
            incarnation_key=answer.incarnation_key,
            lease_ms=answer.lease_ms,
            margin_ms=answer.lease_margin_ms,
            heartbeat_seconds=answer.heartbeat_interval_seconds or 1.0,
            epoch=answer.epoch,
            signed_epoch=signed_epoch_from_pb(answer.signed_epoch),
            max_jobs=answer.max_jobs_per_worker,
        )

    def authenticate(self, key: str) -> None:
        """Later calls carry this key of the incarnation."""
        self.metadata = key_metadata(self._incarnation, key)
        self.key_hash = hash_key(key)

    async def attest_death(self, instance_secret: str, *, nonce: int) -> Sequence[str]:
        """Say as witness that nothing is left of this incarnation, and that its outcomes are committed; the known log-archivers.

        Raises TobanError, UNAUTHENTICATED for a wrong key or secret.
        """
        request = coordinator_pb2.HeartbeatRequest(
            incarnation=self._incarnation,
            stopped=True,
            witnessed=True,
            instance_secret=instance_secret,
            nonce=nonce,
        )
        answer = await self._replicas.call(
            lambda stub: unary(stub.Heartbeat, request, timeout=self._heartbeat_seconds, metadata=self.metadata)
        )
        return tuple(answer.log_archivers)

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Ask for a grant. A coordinator that answers below a generation of before counts for nothing.

        Raises INCARNATION_UNKNOWN only when it is believed, see `UnknownIncarnation`.
        """
        message, now, unknown = heartbeat_to_pb(request, self._incarnation), self._clock.monotonic, self._unknown

        async def ask(stub: Any) -> Any:
            try:
                found = await unary(stub.Heartbeat, message, timeout=self._heartbeat_seconds, metadata=self.metadata)
            except TobanError as error:
                if error.code is ErrorCode.INCARNATION_UNKNOWN:
                    _check_generation(signed_epoch_of_detail(error), request.signed_epoch)
                raise
            _check_generation(signed_epoch_from_pb(found.signed_epoch), request.signed_epoch)
            return found

        try:
            answer = await self._replicas.call(
                ask, on_error=lambda address, error: unknown.note_error(address, error, now())
            )
        except TobanError as error:
            raise unknown.judge(error, now()) from error
        unknown.note_answer(self._replicas.answered_last, now())
        self._replicas.learn(leader=answer.leader_address, addresses=answer.coordinators)
        self._subleader = answer.subleader_address
        return heartbeat_answer_from_pb(answer)

    def continuation_targets(self) -> list[Target]:
        """The leader, the sub-leader of this node, then the other coordinators; those that missed a deadline lately come last among these."""
        others = self._replicas.addresses()
        found = targets(leader=self._replicas.leader, subleader=self._subleader, others=others)
        return [Target(path, address) for path, address in found]

    async def confirm_continuation(
        self, target: Target, question: ContinuationQuestion, *, timeout: float
    ) -> ContinuationAnswer:
        """Ask one coordinator. What it grants below a generation of before counts for nothing. Raises TobanError."""
        message = continuation_to_pb(question, self._incarnation)
        stub = self._replicas.stub(target.address)
        answer = await unary(stub.ConfirmContinuation, message, timeout=timeout, metadata=self.metadata)
        _check_generation(signed_epoch_from_pb(answer.signed_epoch), question.signed_epoch)
        return continuation_answer_from_pb(answer)

    async def watch_settings(self, known_version: int) -> AsyncIterator[Settings]:
        """The settings now and on each change, from one coordinator; the next call goes to the next one. Raises TobanError."""
        method = self._replicas.next_for_stream().WatchSettings
        request = coordinator_pb2.WatchSettingsRequest(known_version=known_version)
        async for message in stream(method, request, timeout=STREAM_SECONDS, metadata=self.metadata):
            yield settings_from_pb(message)

    async def renew_log_tickets(self, tickets: Sequence[LogTicket]) -> list[LogTicket | None]:
        """Tickets of earlier incarnations of this instance, for the key of this one; None for one that is refused. Raises TobanError."""
        found: list[LogTicket | None] = []
        for begin in range(0, len(tickets), RENEWED_TICKETS):
            part = tickets[begin : begin + RENEWED_TICKETS]
            request = coordinator_pb2.RenewLogTicketsRequest(incarnation=self._incarnation, tickets=part)

            async def ask(stub: Any, request: Any = request) -> Any:
                return await unary(stub.RenewLogTickets, request, timeout=REPORT_SECONDS, metadata=self.metadata)

            answer = await self._replicas.call(ask)
            for renewed in answer.tickets:
                if renewed.refusal:
                    _log.error("log ticket not renewed", why=renewed.refusal)
                found.append(None if renewed.refusal else renewed.ticket)
        return found

    async def store_checkpoint(self, key: AttemptKey, seq: int, value_json: str) -> bool:
        """Store what a live attempt keeps for the next one; False when the run has gone on without it. Raises TobanError."""
        checkpoint = coordinator_pb2.Checkpoint(key=key_to_pb(key), seq=seq, value_json=value_json)
        request = coordinator_pb2.ReportRequest(incarnation=self._incarnation, checkpoints=[checkpoint])
        answer = await self._replicas.call(
            lambda stub: unary(stub.Report, request, timeout=REPORT_SECONDS, metadata=self.metadata)
        )
        if not answer.checkpoints:
            raise TobanError(
                ErrorCode.UNAVAILABLE, "the coordinator stores no checkpoints: it is of an earlier release"
            )
        return bool(answer.checkpoints[0].stored)

    async def report(self, reports: Sequence[Report]) -> list[ReportAnswer]:
        """Send reports; those without an answer are to be sent again."""
        request = coordinator_pb2.ReportRequest(
            incarnation=self._incarnation, reports=[report_to_pb(report) for report in reports], keeps_refused=True
        )
        answer = await self._replicas.call(
            lambda stub: unary(stub.Report, request, timeout=REPORT_SECONDS, metadata=self.metadata)
        )
        return [
            ReportAnswer(key_from_pb(result.key), result.seq, result.result, result.message)
            for result in answer.results
        ]
