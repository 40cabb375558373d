"""Output of external workers over LogIngest.Append, as executors send theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import zstandard

from toban_coordinator.ports.claim_logs import LogPlace
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.log_block import STDERR, STDOUT, SYSTEM, LogBlock
from toban_observability.logs import get_logger
from toban_proto.v1.logs_pb2 import AppendRequest, AppendResponse, ChunkRefusal, LogChunk, Seal
from toban_proto.v1.logs_pb2_grpc import LogIngestStub
from toban_runtime.clock import Clock
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import duplex
from toban_transport.log_chunks import lines_to_pb, stream_to_pb
from toban_transport.log_ticket import TicketSigner
from toban_transport.replicas import Replicas

if TYPE_CHECKING:
    from toban_proto.v1.logs_pb2_grpc import LogIngestAsyncStub

CALL_SECONDS = 10.0
# In place of the incarnation of an executor: no executor has a part in an external step.
NO_INCARNATION = "00000000-0000-0000-0000-000000000000"

_log = get_logger(__name__)


class ClaimLogCalls:
    """The ClaimLogs. `addresses` are the configured log-archivers (host:port)."""

    def __init__(self, *, channels: ChannelPool, addresses: Sequence[str], clock: Clock, signer: TicketSigner) -> None:
        self._signer = signer
        self._zstd = zstandard.ZstdCompressor(level=1)
        self._seals: set[asyncio.Task[None]] = set()
        self._replicas = Replicas(
            channels=channels,
            stub=LogIngestStub,
            service="log-archiver",
            addresses=addresses,
            clock=clock,
            unknown="this coordinator knows no log-archiver: set SCHEDULER_LOG_ARCHIVERS",
        )

    async def append(self, place: LogPlace, blocks: Sequence[LogBlock]) -> None:
        """See ClaimLogs."""
        by_stream = {stream: [one for one in blocks if one.stream == stream] for stream in (STDOUT, STDERR, SYSTEM)}
        chunks = [self._chunk(place, found) for found in by_stream.values() if found]
        for refusal in await self._send(place, AppendRequest(chunks=chunks)):
            if refusal.code == "CHUNK_INVALID":
                message = f"lines from {refusal.seq_from} on are not stored: {refusal.message}"
                raise TobanError(ErrorCode.CONFLICT, message)
            raise TobanError(ErrorCode.UNAVAILABLE, f"a log-archiver refuses the lines: {refusal.message}")

    def seal(self, place: LogPlace, last_seq: int) -> None:
        """See ClaimLogs."""
        task = asyncio.create_task(self._seal(place, last_seq), name=f"seal of the log of run {place.key.run_id}")
        self._seals.add(task)
        task.add_done_callback(self._seals.discard)

    async def _seal(self, place: LogPlace, last_seq: int) -> None:
        seal = Seal(run_id=place.key.run_id, token=place.key.token, last_seq=last_seq)
        try:
            await self._send(place, AppendRequest(seals=[seal]))
        except TobanError as error:
            _log.info("the log of an external step is not sealed yet", run_id=place.key.run_id, error=error.message)

    async def _send(self, place: LogPlace, request: AppendRequest) -> Sequence[ChunkRefusal]:
        request.request_id = 1
        request.tickets.append(
            self._signer.sign(
                run_id=place.key.run_id, token=place.key.token, incarnation=NO_INCARNATION, log_day=place.log_day
            )
        )

        async def one() -> AsyncIterator[AppendRequest]:
            yield request

        async def send(stub: LogIngestAsyncStub) -> AppendResponse | None:
            answers = [answer async for answer in duplex(stub.Append, one(), timeout=CALL_SECONDS)]
            return answers[0] if answers else None

        try:
            return (await self._replicas.call(send)).refusals
        except TobanError as error:
            if error.code is not ErrorCode.PERMISSION_DENIED:
                raise
            # Not a refusal of the worker.
            message = f"no log-archiver takes the lines; those of the release before refuse them: {error.message}"
            raise TobanError(ErrorCode.UNAVAILABLE, message) from None

    def _chunk(self, place: LogPlace, blocks: Sequence[LogBlock]) -> LogChunk:
        return LogChunk(
            run_id=place.key.run_id,
            token=place.key.token,
            stream=stream_to_pb(blocks[0].stream),
            seq_from=blocks[0].seq_from,
            seq_to=blocks[-1].seq_from + blocks[-1].lines - 1,
            line_count=sum(block.lines for block in blocks),
            data=self._zstd.compress(lines_to_pb(blocks).SerializeToString()),
        )
