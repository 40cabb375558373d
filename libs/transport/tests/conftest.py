"""Certificates of every kind, and servers on loopback with real mTLS."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from toban_proto.v1 import executor_pb2, executor_pb2_grpc, logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_testing import forged_certificates
from toban_testing.clock import FakeClock
from toban_transport.channel import ChannelPool
from toban_transport.server import GrpcServer, build_server
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"
Forge = Callable[..., TlsFiles]


@pytest.fixture
def forge(tls: Path, tmp_path: Path) -> Forge:
    """Makes a client folder with any names, signed by our authority or by one of its own."""

    def make(
        uris: Sequence[str],
        dns: Sequence[str],
        *,
        own_ca: bool = False,
        common_name: str = "x",
        valid: tuple[datetime, datetime] = forged_certificates.VALID,
    ) -> TlsFiles:
        folder = tmp_path / f"forged{len(list(tmp_path.iterdir()))}"
        forged_certificates.forge(tls, folder, uris, dns, own_ca=own_ca, common_name=common_name, valid=valid)
        # As if it had just been issued: also what has expired by now can be presented to others.
        return TlsFiles(folder, clock=FakeClock(start=valid[0]))

    return make


class Worker(executor_pb2_grpc.WorkerServiceServicer):
    """Answers Ping and GetStatus as the test says; everything else is not served."""

    def __init__(self) -> None:
        self.on_ping: Callable[[Any], Any] | None = None

    async def Ping(self, request: Any, context: Any) -> Any:
        if self.on_ping:
            answer = await self.on_ping(context)
            if answer is not None:
                return answer
        return executor_pb2.PingResponse(incarnation="i1")


class Logs(logs_pb2_grpc.LogIngestServicer, logs_pb2_grpc.LogReaderServicer):
    """Streams: Append acknowledges each request, Read yields three answers and fails when asked for run 404."""

    async def Append(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for request in request_iterator:
            yield logs_pb2.AppendResponse(request_id=request.request_id)

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        from toban_domain.errors import ErrorCode, TobanError

        for token in (1, 2, 3):
            yield logs_pb2.ReadLogResponse(token=token)
        if request.run_id == 404:
            raise TobanError(ErrorCode.RUN_NOT_FOUND, "no run 404")


@dataclass
class Site:
    """A served executor: where it listens, its servicer, and channels that the test opens."""

    address: str
    worker: Worker
    tls: Path
    server: GrpcServer
    pools: list[ChannelPool] = field(default_factory=list)

    def stub(self, files: TlsFiles, service: str = "executor") -> Any:
        pool = ChannelPool(tls=files, trust_domain=DOMAIN)
        self.pools.append(pool)
        return executor_pb2_grpc.WorkerServiceStub(pool.get(self.address, service))

    def log_channel(self, caller: str) -> Any:
        pool = ChannelPool(tls=TlsFiles(self.tls / caller), trust_domain=DOMAIN)
        self.pools.append(pool)
        return pool.get(self.address, "executor")

    def as_service(self, name: str) -> Any:
        return self.stub(TlsFiles(self.tls / name))


@pytest.fixture
async def site(tls: Path) -> AsyncIterator[Site]:
    """An executor's server with all test servicers."""
    worker, logs = Worker(), Logs()
    server = build_server(tls=TlsFiles(tls / "executor"), trust_domain=DOMAIN, clock=SystemClock())
    server.add(executor_pb2_grpc.add_WorkerServiceServicer_to_server, worker)
    server.add(logs_pb2_grpc.add_LogIngestServicer_to_server, logs)
    server.add(logs_pb2_grpc.add_LogReaderServicer_to_server, logs)
    port = await server.start("127.0.0.1", 0)
    served = Site(f"127.0.0.1:{port}", worker, tls, server)
    yield served
    for pool in served.pools:
        await pool.close()
    await server.stop(0)
