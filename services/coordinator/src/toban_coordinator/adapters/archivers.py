"""Calls to log-archivers: the state of the archive, for the pages and the API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.logs_pb2 import ArchiveStatusRequest, ArchiveStatusResponse
from toban_proto.v1.logs_pb2_grpc import LogArchiveStub
from toban_runtime.clock import Clock
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
        self._clock = clock
        self._asked: asyncio.Task[ArchiveStatusResponse] | None = None
        self._answered_at = 0.0

    async def status(self) -> ArchiveStatusResponse:
        """At most KEPT_SECONDS old. Callers that come meanwhile wait for the same answer, also when the first caller has left. Raises TobanError."""
        if self._asked is None or self._is_old(self._asked):
            self._asked = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._asked)

    def _is_old(self, asked: asyncio.Task[ArchiveStatusResponse]) -> bool:
        if not asked.done():
            return False
        failed = asked.cancelled() or asked.exception() is not None
        return failed or self._clock.monotonic() - self._answered_at >= KEPT_SECONDS

    async def _ask(self) -> ArchiveStatusResponse:
        try:
            answer = await self._replicas.call(
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
        self._answered_at = self._clock.monotonic()
        return answer
