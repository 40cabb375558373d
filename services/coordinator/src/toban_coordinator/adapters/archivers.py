"""Calls to log-archivers: the state of the archive, for the pages and the API."""

from __future__ import annotations

from collections.abc import Sequence

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.logs_pb2 import ArchiveStatusRequest, ArchiveStatusResponse
from toban_proto.v1.logs_pb2_grpc import LogArchiveStub
from toban_runtime.clock import Clock
from toban_runtime.shared_answer import SharedAnswer
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.replicas import Replicas

# A log-archiver counts the stored output of whole days, so people share its answers.
KEPT_SECONDS = 15.0
CALL_SECONDS = 30.0


class Archivers:
    """`addresses` are the configured log-archivers (host:port)."""

    def __init__(self, *, channels: ChannelPool, addresses: Sequence[str], clock: Clock) -> None:
        self._replicas = Replicas(
            channels=channels,
            stub=LogArchiveStub,
            service="log-archiver",
            addresses=addresses,
            clock=clock,
            unknown="this coordinator knows no log-archiver: set SCHEDULER_LOG_ARCHIVERS",
        )
        self._status = SharedAnswer(self._ask, clock, keep=lambda took: KEPT_SECONDS + took)

    async def status(self) -> ArchiveStatusResponse:
        """At most KEPT_SECONDS old. Raises TobanError."""
        return await self._status.get()

    async def _ask(self) -> ArchiveStatusResponse:
        try:
            return await self._replicas.call(
                lambda stub: unary(stub.Status, ArchiveStatusRequest(), timeout=CALL_SECONDS)
            )
        except TobanError as error:
            if error.code is not ErrorCode.PERMISSION_DENIED:
                raise
            # Not a refusal of the person who asks.
            message = (
                f"no log-archiver answers this coordinator; those of the release before refuse it: {error.message}"
            )
            raise TobanError(ErrorCode.UNAVAILABLE, message) from None
