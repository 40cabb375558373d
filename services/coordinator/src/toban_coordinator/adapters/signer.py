"""Calls of the signer, which alone has the key of the certificate authority."""

from __future__ import annotations

from collections.abc import Sequence

from toban_coordinator.ports.signer import Signed
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.joining_pb2 import SignRequest
from toban_proto.v1.joining_pb2_grpc import SignerStub
from toban_runtime.clock import Clock
from toban_transport.authz import executor_name
from toban_transport.call_context import serial_of
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.convert import timestamp_from_pb
from toban_transport.replicas import Replicas

SIGN_SECONDS = 5.0


class SignerClient:
    """`addresses` are the configured signers (host:port); without one nothing is signed."""

    def __init__(self, *, channels: ChannelPool, addresses: Sequence[str], clock: Clock) -> None:
        self._is_on = bool(addresses)
        self._replicas = Replicas(
            channels=channels,
            stub=SignerStub,
            service="signer",
            addresses=addresses,
            clock=clock,
            unknown="this coordinator knows no signer: set SCHEDULER_SIGNER",
        )

    async def sign(self, request: bytes, *, group: str) -> Signed:
        """See Signing."""
        if not self._is_on:
            message = "machines cannot join this installation: its coordinators have no signer (SCHEDULER_SIGNER, docs/joining.md)"
            raise TobanError(ErrorCode.UNIMPLEMENTED, message)
        asked = SignRequest(request_pem=request, name=executor_name(group))
        answer = await self._replicas.call(lambda stub: unary(stub.Sign, asked, timeout=SIGN_SECONDS))
        ends_at = timestamp_from_pb(answer.ends_at)
        assert ends_at is not None, "a signer names the end"
        return Signed(certificate=answer.certificate_pem, serial=serial_of(answer.certificate_pem), ends_at=ends_at)
