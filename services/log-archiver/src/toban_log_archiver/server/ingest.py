"""LogIngest: translates chunks, tickets and seals, and acknowledges each request after its commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from google.protobuf.message import DecodeError

from toban_domain.errors import TobanError
from toban_domain.incarnation_key import KEY, hash_key
from toban_domain.outcome import AttemptKey
from toban_log_archiver.app.append_session import (
    Admitted,
    AppendSession,
    BadTicket,
    Refusal,
    SentChunk,
    SentRequest,
    SentSeal,
    Ticket,
)
from toban_log_archiver.app.chunk_writer import ChunkWriter, Place
from toban_proto.v1.common_pb2 import LogTicket, LogTicketBody
from toban_proto.v1.logs_pb2 import AppendRequest, AppendResponse, ChunkRefusal, LogChunk
from toban_proto.v1.logs_pb2_grpc import LogIngestServicer, add_LogIngestServicer_to_server
from toban_runtime.clock import Clock
from toban_transport.convert import key_to_pb
from toban_transport.log_ticket import TicketHolder, TicketVerifier, check_holder
from toban_transport.server import metadata, peer_group

add_to_server = add_LogIngestServicer_to_server
"""What a server's `add` takes beside a LogIngest."""

# Requests of one stream whose commit is awaited; more stay in gRPC's flow control.
MAX_OPEN_REQUESTS = 64


@dataclass(frozen=True, slots=True)
class _Open:
    """A request that was submitted: what is refused already, and the future of the rest."""

    request_id: int
    admitted: Admitted
    done: Awaitable[Mapping[Place, str]]


class LogIngest(LogIngestServicer):
    """Called by executors. Requests of a stream are checked and submitted in order, and acknowledged in order."""

    def __init__(
        self,
        *,
        new_session: Callable[[], AppendSession],
        writer: ChunkWriter,
        verifier: TicketVerifier,
        clock: Clock,
    ) -> None:
        self._new_session = new_session
        self._writer = writer
        self._verifier = verifier
        self._clock = clock

    async def Append(self, request_iterator: AsyncIterator[AppendRequest], context: Any) -> None:  # type: ignore[override]
        """Stores chunks and seals. A StoreError ends the call (UNAVAILABLE): send what is not acknowledged again."""
        session = self._new_session()
        key = metadata(context).get(KEY, "")
        holder = TicketHolder(key_hash=hash_key(key) if key else b"", group=peer_group(context))
        submitted: asyncio.Queue[_Open | None] = asyncio.Queue()
        room = asyncio.Semaphore(MAX_OPEN_REQUESTS)

        async def receive() -> None:
            try:
                async for request in request_iterator:
                    await room.acquire()
                    admitted = await session.admit(self._translated(request, holder))
                    done = await self._writer.submit(admitted.work)
                    submitted.put_nowait(_Open(request.request_id, admitted, done))
            finally:
                submitted.put_nowait(None)

        receiver = asyncio.create_task(receive())
        try:
            while (one := await submitted.get()) is not None:
                refusals = session.complete(one.admitted, await one.done)
                room.release()
                await context.write(AppendResponse(request_id=one.request_id, refusals=map(_refusal_to_pb, refusals)))
            await receiver
        finally:
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)

    def _translated(self, request: AppendRequest, holder: TicketHolder) -> SentRequest:
        return SentRequest(
            tickets=[self._ticket(ticket, holder) for ticket in request.tickets],
            chunks=[chunk_from_pb(chunk) for chunk in request.chunks],
            seals=[SentSeal(AttemptKey(seal.run_id, seal.token), seal.last_seq) for seal in request.seals],
        )

    def _ticket(self, ticket: LogTicket, holder: TicketHolder) -> Ticket | BadTicket:
        try:
            body = self._verifier.verify(ticket, now=self._clock.wall())
            check_holder(body, holder)
        except TobanError as error:
            return BadTicket(claimed=_claimed_key(ticket), code=error.code.value, message=error.message)
        return Ticket(
            key=AttemptKey(body.run_id, body.token),
            log_day=date.fromisoformat(body.log_day),
            incarnation=body.incarnation,
        )


def _claimed_key(ticket: LogTicket) -> AttemptKey | None:
    try:
        body = LogTicketBody.FromString(ticket.body)
    except DecodeError:
        return None
    # An empty body decodes, and names no attempt.
    return AttemptKey(body.run_id, body.token) if body.run_id or body.token else None


def chunk_from_pb(chunk: LogChunk) -> SentChunk:
    """A chunk as its sender describes it."""
    return SentChunk(
        key=AttemptKey(chunk.run_id, chunk.token),
        stream=chunk.stream,
        seq_from=chunk.seq_from,
        seq_to=chunk.seq_to,
        line_count=chunk.line_count,
        data=chunk.data,
    )


def _refusal_to_pb(refusal: Refusal) -> ChunkRefusal:
    return ChunkRefusal(
        key=key_to_pb(refusal.key), seq_from=refusal.seq_from, code=refusal.code, message=refusal.message
    )
