"""Calls to log-archivers: the state of the archive, a pass of it and a check, for the pages and the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from toban_coordinator.ports.archivers import ArchiveCheck, CheckedObject
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.logs_pb2 import (
    ArchiveStatusRequest,
    ArchiveStatusResponse,
    RunArchiveRequest,
    VerifyArchiveRequest,
)
from toban_proto.v1.logs_pb2_grpc import LogArchiveStub
from toban_runtime.clock import Clock
from toban_runtime.shared_answer import SharedAnswer
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream, unary
from toban_transport.replicas import Replicas

if TYPE_CHECKING:
    from toban_proto.v1.logs_pb2_grpc import LogArchiveAsyncStub

# A log-archiver counts the stored output of whole days, so people share its answers.
KEPT_SECONDS = 15.0
CALL_SECONDS = 30.0
# A pass only begins within a call.
BEGIN_SECONDS = 5.0
# A part of a check ends with the object during which this has passed, and with the last broken object that a part has room for.
VERIFY_SECONDS = 20.0
MOST_BROKEN = 100
# The first object of a part has this long, within the time that people's calls have (SLOW_CALLS of admin-web, MAX_UNARY_SECONDS).
PART_SECONDS = 50.0
T = TypeVar("T")


class Archivers:
    """`addresses` are the configured log-archivers (host:port)."""

    def __init__(self, *, channels: ChannelPool, addresses: Sequence[str], clock: Clock) -> None:
        self._clock = clock
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

    async def begin_pass(self) -> None:
        """See ArchiveCalls."""

        async def begin(stub: LogArchiveAsyncStub) -> bool:
            async for _ in stream(stub.RunArchive, RunArchiveRequest(background=True), timeout=BEGIN_SECONDS):
                pass
            return True

        await self._call(begin)

    async def verify(self, log_day: str, *, after: int) -> ArchiveCheck:
        """See ArchiveCalls."""

        async def read(stub: LogArchiveAsyncStub) -> ArchiveCheck:
            until = self._clock.monotonic() + VERIFY_SECONDS
            request = VerifyArchiveRequest(log_day=log_day, after=after)
            found: list[CheckedObject] = []
            broken = 0
            try:
                async for one in stream(stub.Verify, request, timeout=PART_SECONDS):
                    checked = CheckedObject(
                        number=one.number, key=one.key, chunks=one.chunks, bytes=one.bytes, problem=one.problem
                    )
                    found.append(checked)
                    broken += bool(one.problem)
                    if broken == MOST_BROKEN or self._clock.monotonic() >= until:
                        return ArchiveCheck(objects=found, more=True)
            except TobanError:
                if not found:
                    raise
                # What was read stays read; the next part meets the object that was too slow, or another log-archiver.
                return ArchiveCheck(objects=found, more=True)
            return ArchiveCheck(objects=found, more=False)

        return await self._call(read)

    async def _ask(self) -> ArchiveStatusResponse:
        return await self._call(lambda stub: unary(stub.Status, ArchiveStatusRequest(), timeout=CALL_SECONDS))

    async def _call(self, work: Callable[[LogArchiveAsyncStub], Awaitable[T]]) -> T:
        try:
            return await self._replicas.call(work)
        except TobanError as error:
            if error.code is not ErrorCode.PERMISSION_DENIED:
                raise
            # Not a refusal of the person who asks.
            message = (
                f"no log-archiver answers this coordinator; those of the release before refuse it: {error.message}"
            )
            raise TobanError(ErrorCode.UNAVAILABLE, message) from None
