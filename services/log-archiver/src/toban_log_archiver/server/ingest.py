"""LogIngest: chunks in, acknowledgements out after the commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toban_log_archiver.server.append_session import Admitted, AppendSession
from toban_log_archiver.server.group_commit import GroupWriter, Place
from toban_proto.v1.logs_pb2 import AppendRequest, AppendResponse
from toban_proto.v1.logs_pb2_grpc import LogIngestServicer, add_LogIngestServicer_to_server

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

    def __init__(self, *, new_session: Callable[[], AppendSession], writer: GroupWriter) -> None:
        self._new_session = new_session
        self._writer = writer

    async def Append(self, request_iterator: AsyncIterator[AppendRequest], context: Any) -> None:  # type: ignore[override]
        """Stores chunks and seals. A StoreError ends the call (UNAVAILABLE): send what is not acknowledged again."""
        session = self._new_session()
        submitted: asyncio.Queue[_Open | None] = asyncio.Queue()
        room = asyncio.Semaphore(MAX_OPEN_REQUESTS)

        async def receive() -> None:
            try:
                async for request in request_iterator:
                    await room.acquire()
                    admitted = await session.admit(request)
                    done = await self._writer.submit(admitted.work)
                    submitted.put_nowait(_Open(request.request_id, admitted, done))
            finally:
                submitted.put_nowait(None)

        receiver = asyncio.create_task(receive())
        try:
            while (one := await submitted.get()) is not None:
                refused = session.settle(one.admitted, await one.done)
                room.release()
                await context.write(AppendResponse(request_id=one.request_id, refusals=refused))
            await receiver
        finally:
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)
