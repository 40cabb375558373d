"""Tickets on their way to a log-archiver: proven by the key of the incarnation, renewed for those before it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.incarnation_key import hash_key, key_metadata
from toban_domain.outcome import AttemptKey
from toban_executor.adapters.log_client import ArchiverClient
from toban_executor.ports.logs import ChunkBatch, Seal
from toban_proto.v1.common_pb2 import LogTicket, LogTicketBody
from toban_proto.v1.logs_pb2 import AppendResponse
from toban_proto.v1.logs_pb2_grpc import LogIngestServicer, add_LogIngestServicer_to_server
from toban_runtime.clock import SystemClock
from toban_transport.channel import ChannelPool
from toban_transport.server import build_server, metadata
from toban_transport.tls import TlsFiles


class Keys:
    """The key of an incarnation; renews what is not refused."""

    def __init__(self, key: str) -> None:
        self.metadata = key_metadata("i2", key) if key else ()
        self.key_hash = hash_key(key) if key else b""
        self.asked: list[list[LogTicket]] = []
        self.refusing = False
        self.hold: asyncio.Event | None = None
        self.began = asyncio.Event()

    async def renew_log_tickets(self, tickets: Sequence[LogTicket]) -> list[LogTicket | None]:
        self.asked.append(list(tickets))
        self.began.set()
        if self.hold is not None:
            await self.hold.wait()
        return [None if self.refusing else LogTicket(body=b"new", signature=one.signature) for one in tickets]


class Ingest(LogIngestServicer):
    """Accepts everything; keeps the metadata and the requests."""

    def __init__(self) -> None:
        self.metadata: dict[str, str] = {}
        self.requests: list[Any] = []

    async def Append(self, request_iterator: Any, context: Any) -> Any:  # type: ignore[override]
        self.metadata = dict(metadata(context))
        async for request in request_iterator:
            self.requests.append(request)
            yield AppendResponse(request_id=request.request_id)


@pytest.fixture
async def archiver(tls: Path) -> AsyncIterator[Any]:
    ingest = Ingest()
    server = build_server(tls=TlsFiles(tls / "log-archiver"), trust_domain="toban.internal", clock=SystemClock())
    server.add(add_LogIngestServicer_to_server, ingest)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    channels = ChannelPool(tls=TlsFiles(tls / "executor"), trust_domain="toban.internal")

    def client(keys: Keys) -> ArchiverClient:
        return ArchiverClient(channels=channels, addresses=[address], keys=keys)

    yield ingest, client
    await channels.close()
    await server.stop(0)


def batch(run: int, key_hash: bytes) -> ChunkBatch:
    """One attempt with its ticket, whose signature is the number of the run."""
    key = AttemptKey(run, run)
    ticket = LogTicket(body=LogTicketBody(run_id=run, key_hash=key_hash).SerializeToString(), signature=b"%d" % run)
    return ChunkBatch(chunks=[], seals=[Seal(key, 1)], tickets={key: ticket.SerializeToString()})


def sent(ingest: Ingest) -> list[tuple[bytes, bool]]:
    """Each ticket that the archiver got, and whether it was renewed."""
    return [(one.signature, one.body == b"new") for request in ingest.requests for one in request.tickets]


async def test_own_tickets_go_out_as_they_are_with_the_key(archiver: Any) -> None:
    ingest, client = archiver
    keys = Keys("secret")
    async with client(keys).open() as stream:
        await stream.append(batch(1, keys.key_hash))
        await stream.append(batch(2, b""))
    assert sent(ingest) == [(b"1", False), (b"2", False)] and keys.asked == []
    assert ingest.metadata["toban-incarnation-key"] == "secret"


@pytest.mark.parametrize("refusing", [False, True])
async def test_tickets_of_earlier_incarnations_are_renewed(archiver: Any, refusing: bool) -> None:
    ingest, client = archiver
    keys = Keys("secret")
    keys.refusing = refusing
    async with client(keys).open() as stream:
        await stream.append(batch(1, hash_key("the key before")))
        await stream.append(batch(1, hash_key("the key before")))
    # One that is refused goes out all the same: the archiver's refusal keeps its lines in quarantine.
    assert sent(ingest) == [(b"1", not refusing)] and len(keys.asked) == 1


async def test_batches_keep_their_order_while_one_waits_for_its_tickets(archiver: Any) -> None:
    ingest, client = archiver
    keys = Keys("secret")
    keys.hold = asyncio.Event()
    async with client(keys).open() as stream:
        first = asyncio.create_task(stream.append(batch(1, hash_key("the key before"))))
        await keys.began.wait()
        second = asyncio.create_task(stream.append(batch(2, keys.key_hash)))
        await asyncio.sleep(0)
        keys.hold.set()
        await asyncio.gather(first, second)
    assert sent(ingest) == [(b"1", True), (b"2", False)]


async def test_before_the_registration_lines_of_earlier_incarnations_wait(archiver: Any) -> None:
    ingest, client = archiver
    with pytest.raises(TobanError) as caught:
        async with client(Keys("")).open() as stream:
            await stream.append(batch(1, hash_key("the key before")))
    assert caught.value.code is ErrorCode.UNAVAILABLE and sent(ingest) == []
