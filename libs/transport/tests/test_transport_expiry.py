"""Certificates that expire while their connection or their TLS session goes on, and connections that never finish a handshake."""

import asyncio
import ssl
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_proto.v1 import executor_pb2, executor_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_testing.tls_session_client import TlsSessionClient
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"
PATH = "/toban_proto.v1.WorkerService/Ping"


class Movable(SystemClock):
    """The wall clock of a server, which the test sets."""

    at: datetime | None = None

    def wall(self) -> datetime:
        return self.at or super().wall()


class Worker(executor_pb2_grpc.WorkerServiceServicer):
    """Notes whether each call came by a resumed session; waits when the test says so."""

    def __init__(self) -> None:
        self.resumed: list[bool] = []
        self.hold: asyncio.Event | None = None
        self.entered = asyncio.Event()

    async def Ping(self, request: Any, context: Any) -> Any:
        self.resumed.append(context.auth_context().get("ssl_session_reused") == [b"true"])
        self.entered.set()
        if self.hold is not None:
            await self.hold.wait()
        return executor_pb2.PingResponse(incarnation="i1")


@pytest.fixture
async def served(tls: Path) -> Any:
    clock, worker = Movable(), Worker()
    server = build_server(tls=TlsFiles(tls / "executor"), trust_domain=DOMAIN, clock=clock, handshake_seconds=0.5)
    server.add(executor_pb2_grpc.add_WorkerServiceServicer_to_server, worker)
    port = await server.start("127.0.0.1", 0)
    yield clock, worker, port
    await server.stop(0)


def not_after(tls: Path) -> datetime:
    return x509.load_pem_x509_certificate((tls / "coordinator" / "tls.crt").read_bytes()).not_valid_after_utc


def refused() -> float:
    found = metrics.REGISTRY.get_sample_value("toban_rpc_total", {"method": PATH, "code": "UNAUTHENTICATED"})
    return found or 0.0


def client_of(tls: Path, version: ssl.TLSVersion, port: int) -> TlsSessionClient:
    """Calls Ping as a coordinator, each time on a connection of its own."""
    return TlsSessionClient(
        tls / "coordinator", version=version, port=port, server_name=f"executor.{DOMAIN}", path=PATH
    )


async def test_calls_over_tls_1_2_are_refused_in_new_and_in_resumed_sessions(served: Any, tls: Path) -> None:
    _, worker, port = served
    client, before = client_of(tls, ssl.TLSVersion.TLSv1_2, port), refused()
    assert not await asyncio.to_thread(client.call)
    assert await asyncio.to_thread(client.call), "the session is resumed"
    for _ in range(6000):  # they are counted after the answers have left
        if refused() == before + 2:
            break
        await asyncio.sleep(0.01)
    assert refused() == before + 2 and worker.resumed == [], "the handler did not run"


async def test_an_expired_certificate_does_not_go_on_in_a_resumed_session(served: Any, tls: Path) -> None:
    clock, worker, port = served
    client = client_of(tls, ssl.TLSVersion.TLSv1_3, port)
    assert not await asyncio.to_thread(client.call)
    assert await asyncio.to_thread(client.call), "the session is resumed"
    assert worker.resumed == [False, True]
    before, clock.at = refused(), not_after(tls)
    assert await asyncio.to_thread(client.call), "TLS itself still takes it"
    for _ in range(6000):  # it is counted after the answer has left
        if refused() > before:
            break
        await asyncio.sleep(0.01)
    assert refused() == before + 1
    assert len(worker.resumed) == 2, "the handler did not run"


async def test_calls_of_an_open_connection_end_with_the_certificate(served: Any, tls: Path) -> None:
    clock, _, port = served
    pool = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN)
    ping = executor_pb2_grpc.WorkerServiceStub(pool.get(f"127.0.0.1:{port}", "executor")).Ping
    await unary(ping, executor_pb2.PingRequest(), timeout=20)
    clock.at = not_after(tls)
    with pytest.raises(TobanError) as caught:
        await unary(ping, executor_pb2.PingRequest(), timeout=20)
    assert caught.value.code is ErrorCode.UNAUTHENTICATED
    assert "expired at" in caught.value.message and "issue it again" in caught.value.message
    await pool.close()


async def test_a_call_under_way_ends_with_the_certificate(served: Any, tls: Path) -> None:
    clock, worker, port = served
    worker.hold = asyncio.Event()
    ends = not_after(tls)
    # Real time goes on from here: the bound is a second, and what is measured afterwards is past the end.
    clock.wall = lambda: ends.fromtimestamp(ends.timestamp() - (0 if worker.entered.is_set() else 1), ends.tzinfo)
    pool = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN)
    ping = executor_pb2_grpc.WorkerServiceStub(pool.get(f"127.0.0.1:{port}", "executor")).Ping
    with pytest.raises(TobanError) as caught:
        await unary(ping, executor_pb2.PingRequest(), timeout=60)
    assert caught.value.code is ErrorCode.UNAUTHENTICATED
    await pool.close()


async def test_a_connection_that_says_nothing_is_closed(served: Any) -> None:
    """Each holds a file descriptor; with gRPC's own bound of two minutes a thousand of them shut a server."""
    _, _, port = served
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
        while await reader.read(4096):
            pass
    writer.close()
