"""Log chunks over LogIngest.Append: packing, streams, tickets, acknowledgements."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import zstandard

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.adapters.convert import key_of_ticket, ticket_from_bytes
from toban_executor.decide.outcome import at
from toban_executor.ports.logs import Chunk, ChunkBatch, Shipped
from toban_proto.v1 import logs_pb2
from toban_proto.v1.common_pb2 import LogTicket
from toban_proto.v1.logs_pb2_grpc import LogIngestStub
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import duplex
from toban_transport.convert import key_from_pb, timestamp_to_pb
from toban_transport.log_chunks import lines_to_pb, stream_to_pb

if TYPE_CHECKING:
    from toban_proto.v1.logs_pb2_grpc import LogIngestAsyncStub

STREAM_SECONDS = 300.0
"""How long one stream may last; a longer backlog goes on over the next one."""

ANSWER_SECONDS = 30.0


class Packer:
    """Makes a zstd frame of a serialised LogLines."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdCompressor(level=1)

    def __call__(self, blocks: Sequence[LogBlock]) -> bytes:
        """The data of one chunk."""
        return self._zstd.compress(lines_to_pb(blocks).SerializeToString())


class TicketKeys(Protocol):
    """What proves an executor's log tickets: the key of its incarnation."""

    metadata: tuple[tuple[str, str], ...]
    key_hash: bytes

    async def renew_log_tickets(self, tickets: Sequence[LogTicket]) -> list[LogTicket | None]:
        """Tickets of earlier incarnations, for the key of this one; None for one that is refused. Raises TobanError."""
        ...


class ArchiverClient:
    """Log-archivers by address; the next one after each failure. `keys` proves the tickets."""

    def __init__(self, *, channels: ChannelPool, addresses: Sequence[str], keys: TicketKeys) -> None:
        self._channels = channels
        self._keys = keys
        self._addresses = tuple(addresses)
        self._next = 0

    def learn(self, addresses: Sequence[str]) -> bool:
        """Archivers that a coordinator knows; they replace the configured ones. True when they are others than before."""
        before, self._addresses = self._addresses, tuple(addresses)
        return set(before) != set(self._addresses)

    def try_another(self) -> None:
        """The next stream goes to the next archiver."""
        self._next += 1

    @asynccontextmanager
    async def open(self) -> "AsyncIterator[AppendStream]":
        """A stream to one archiver, closed in order at the end."""
        if not self._addresses:
            raise TobanError(ErrorCode.UNAVAILABLE, "no log-archiver is known; set SCHEDULER_LOG_ARCHIVERS")
        address = self._addresses[self._next % len(self._addresses)]
        stream = AppendStream(LogIngestStub(self._channels.get(address, "log-archiver")), self._keys)
        try:
            yield stream
        except TobanError:
            self.try_another()
            raise
        finally:
            await stream.close()


class AppendStream:
    """One call of Append. Answers are matched by request_id, so several requests may be under way."""

    def __init__(self, stub: "LogIngestAsyncStub", keys: TicketKeys) -> None:
        self._keys = keys
        # Of this call: a registration that comes later counts for the next one.
        self._metadata, self._key_hash = keys.metadata, keys.key_hash
        # Requests go out in the order of `append`, also when one waits for tickets.
        self._turn = asyncio.Lock()
        self._out: asyncio.Queue[logs_pb2.AppendRequest | None] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[logs_pb2.AppendResponse]] = {}
        self._with_ticket: set[AttemptKey] = set()
        self._number = 0
        self._failure: TobanError | None = None
        self._reader = asyncio.ensure_future(self._read(stub))

    async def append(self, batch: ChunkBatch) -> Shipped:
        """Send the batch; returns when it is committed. Raises TobanError when the stream fails."""
        if self._failure is not None:
            raise self._failure
        async with self._turn:
            future = await self._submit(batch)
        answer = await future
        refusals = [(key_from_pb(item.key), item.seq_from, item.code) for item in answer.refusals]
        return Shipped(
            refused=[item for item in refusals if item[2] != "TICKET_MISSING"],
            lacks_ticket=any(item[2] == "TICKET_MISSING" for item in refusals),
        )

    async def close(self) -> None:
        """Half-close and let the server end the call."""
        self._out.put_nowait(None)
        done, _ = await asyncio.wait([self._reader], timeout=5)
        if not done:
            self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader

    async def _submit(self, batch: ChunkBatch) -> "asyncio.Future[logs_pb2.AppendResponse]":
        new = {key: ticket for key, ticket in batch.tickets.items() if key not in self._with_ticket}
        tickets = await self._proven([ticket_from_bytes(ticket) for ticket in new.values()])
        if self._failure is not None:
            raise self._failure
        self._with_ticket.update(new)
        self._number += 1
        future: asyncio.Future[logs_pb2.AppendResponse] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = future
        self._out.put_nowait(_request(self._number, batch, tickets))
        return future

    async def _proven(self, tickets: Sequence[LogTicket]) -> list[LogTicket]:
        """These tickets as the log-archiver takes them: those of earlier incarnations are renewed. One that is refused is sent as it is."""
        others = [number for number, ticket in enumerate(tickets) if key_of_ticket(ticket) not in (b"", self._key_hash)]
        found = list(tickets)
        if others:
            if not self._metadata:
                raise TobanError(ErrorCode.UNAVAILABLE, "log lines of earlier incarnations wait for the registration")
            renewed = await self._keys.renew_log_tickets([tickets[number] for number in others])
            for number, ticket in zip(others, renewed, strict=True):
                found[number] = ticket or tickets[number]
        return found

    async def _requests(self) -> AsyncIterator[logs_pb2.AppendRequest]:
        while (request := await self._out.get()) is not None:
            yield request

    async def _read(self, stub: "LogIngestAsyncStub") -> None:
        failure = TobanError(ErrorCode.UNAVAILABLE, "the log-archiver ended the stream")
        call = duplex(stub.Append, self._requests(), timeout=STREAM_SECONDS, metadata=self._metadata)
        try:
            async for answer in call:
                future = self._waiting.pop(answer.request_id, None)
                if future is not None and not future.done():
                    future.set_result(answer)
        except TobanError as error:
            failure = error
        self._failure = failure
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(failure)


def _request(number: int, batch: ChunkBatch, tickets: Sequence[LogTicket]) -> logs_pb2.AppendRequest:
    return logs_pb2.AppendRequest(
        request_id=number,
        tickets=tickets,
        chunks=[chunk_to_pb(chunk) for chunk in batch.chunks],
        seals=[
            logs_pb2.Seal(run_id=seal.key.run_id, token=seal.key.token, last_seq=seal.last_seq) for seal in batch.seals
        ],
    )


def chunk_to_pb(chunk: Chunk) -> logs_pb2.LogChunk:
    """A chunk of the journal as it travels."""
    return logs_pb2.LogChunk(
        run_id=chunk.key.run_id,
        token=chunk.key.token,
        stream=stream_to_pb(chunk.stream),
        seq_from=chunk.seq_from,
        seq_to=chunk.seq_to,
        data=chunk.data,
        line_count=chunk.lines,
        raw_bytes=chunk.raw_bytes,
        first_at=timestamp_to_pb(at(chunk.first_ns)),
        last_at=timestamp_to_pb(at(chunk.last_ns)),
    )
