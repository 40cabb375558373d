"""One certificate for several services: refused by default; where it is wanted, it works, is counted, and is no key to people's methods."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_observability.metrics import REGISTRY
from toban_proto.v1 import executor_pb2, executor_pb2_grpc, logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.log_ticket import TicketSigner, TicketVerifier
from toban_transport.server import build_server, peer_service
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"
SERVICES = ("coordinator", "executor", "log-archiver", "admin-web")
PING = "/toban_proto.v1.WorkerService/Ping"
Forge = Callable[..., TlsFiles]


@pytest.fixture
def shared(forge: Forge) -> TlsFiles:
    """One id, and the DNS name of each service, since clients go on pinning those."""
    return forge(["spiffe://toban.internal/shared/toban"], [f"{service}.{DOMAIN}" for service in SERVICES])


class Worker(executor_pb2_grpc.WorkerServiceServicer):
    async def Ping(self, request: Any, context: Any) -> Any:
        return executor_pb2.PingResponse(incarnation=peer_service(context))


class Logs(logs_pb2_grpc.LogArchiveServicer):
    """Nothing of it is ever reached."""


@pytest.fixture
async def call(shared: TlsFiles) -> AsyncIterator[Callable[..., Any]]:
    """Ping an executor that has the shared certificate: `call(client files)`."""
    server = build_server(tls=shared, trust_domain=DOMAIN, clock=SystemClock(), shared_identity=True)
    server.add(executor_pb2_grpc.add_WorkerServiceServicer_to_server, Worker())
    server.add(logs_pb2_grpc.add_LogArchiveServicer_to_server, Logs())
    port = await server.start("127.0.0.1", 0)
    pools: list[ChannelPool] = []

    def channel(files: TlsFiles, service: str = "executor") -> Any:
        pools.append(ChannelPool(tls=files, trust_domain=DOMAIN))
        return pools[-1].get(f"127.0.0.1:{port}", service)

    yield channel
    for pool in pools:
        await pool.close()
    await server.stop(0)


async def ping(channel: Any) -> str:
    stub = executor_pb2_grpc.WorkerServiceStub(channel)
    answer = await unary(stub.Ping, executor_pb2.PingRequest(), timeout=60)
    return str(answer.incarnation)


async def test_it_calls_and_serves_where_it_is_wanted_and_is_counted(call: Any, shared: TlsFiles) -> None:
    counted = ("toban_tls_shared_identity_calls_total", {"method": PING})
    before = REGISTRY.get_sample_value(*counted) or 0
    assert await ping(call(shared)) == "shared/toban"
    assert REGISTRY.get_sample_value(*counted) == before + 1
    assert REGISTRY.get_sample_value("toban_tls_shared_identity") == 1


async def test_certificates_of_one_service_go_on_working_beside_it(call: Any, tls: Path) -> None:
    assert await ping(call(TlsFiles(tls / "coordinator"))) == "coordinator"
    with pytest.raises(TobanError) as caught:
        await ping(call(TlsFiles(tls / "executor")))
    assert caught.value.code is ErrorCode.PERMISSION_DENIED


async def test_the_pinned_name_still_has_to_be_in_the_certificate(call: Any, shared: TlsFiles) -> None:
    assert await ping(call(shared, "coordinator")) == "shared/toban"
    with pytest.raises(TobanError) as caught:
        await ping(call(shared, "admin-cli"))
    assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_it_is_no_key_to_what_only_people_may_do(call: Any, shared: TlsFiles) -> None:
    stub = logs_pb2_grpc.LogArchiveStub(call(shared))
    with pytest.raises(TobanError, match="may not call") as caught:
        await unary(stub.Diagnose, logs_pb2.DiagnoseLogsRequest(), timeout=60)
    assert caught.value.code is ErrorCode.PERMISSION_DENIED


async def test_a_server_that_does_not_want_it_refuses_it(site: Any, shared: TlsFiles) -> None:
    with pytest.raises(TobanError, match="SCHEDULER_TLS_SHARED_IDENTITY=1") as caught:
        await unary(site.stub(shared).Ping, executor_pb2.PingRequest(), timeout=60)
    assert caught.value.code is ErrorCode.PERMISSION_DENIED
    assert REGISTRY.get_sample_value("toban_tls_shared_identity") == 0


async def test_a_service_that_has_one_and_does_not_want_it_says_so_at_its_start(shared: TlsFiles) -> None:
    server = build_server(tls=shared, trust_domain=DOMAIN, clock=SystemClock())
    with pytest.raises(
        TobanError, match="issue one certificate a service, or set SCHEDULER_TLS_SHARED_IDENTITY=1"
    ) as caught:
        await server.start("127.0.0.1", 0)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_tickets_that_it_signs_count_only_where_it_is_wanted(shared: TlsFiles, tls: Path) -> None:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    ticket = TicketSigner(shared).sign(run_id=7, token=2**62, incarnation="i1", log_day=date(2027, 1, 1))
    files = TlsFiles(tls / "log-archiver")
    assert TicketVerifier(files, DOMAIN, shared_identity=True).verify(ticket, now=now).run_id == 7
    with pytest.raises(TobanError, match="SCHEDULER_TLS_SHARED_IDENTITY=1") as caught:
        TicketVerifier(files, DOMAIN).verify(ticket, now=now)
    assert caught.value.code is ErrorCode.TICKET_INVALID
