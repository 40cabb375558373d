"""Executors of a group answer at addresses of their group alone."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import executor_pb2 as pb
from toban_proto.v1.executor_pb2_grpc import (
    WorkerServiceServicer,
    WorkerServiceStub,
    add_WorkerServiceServicer_to_server,
)
from toban_runtime.clock import SystemClock
from toban_stack import certs
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles


class Worker(WorkerServiceServicer):
    """Answers pings."""

    async def Ping(self, request: Any, context: Any) -> Any:
        return pb.PingResponse(incarnation="me")


@pytest.fixture
async def addresses(tls: Path) -> AsyncIterator[dict[str, str]]:
    """Service name to the address of an executor with its certificate."""
    servers, found = [], {}
    for name in ("executor", "executor/pci", "executor/web"):
        folder = certs.issue(tls / "ca", name, tls / certs.folder_of(name))
        server = build_server(tls=TlsFiles(folder), trust_domain="toban.internal", clock=SystemClock())
        server.add(add_WorkerServiceServicer_to_server, Worker())
        found[name] = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        servers.append(server)
    yield found
    for server in servers:
        await server.stop(0)


@pytest.mark.parametrize("wanted", ["executor", "executor/pci", "executor/web"])
async def test_a_call_for_a_group_reaches_its_executors_and_no_others(
    tls: Path, addresses: dict[str, str], wanted: str
) -> None:
    channels = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain="toban.internal")
    for name, address in addresses.items():
        stub = channels.stub(WorkerServiceStub, address, wanted)
        if name == wanted:
            assert (await unary(stub.Ping, pb.PingRequest(), timeout=5)).incarnation == "me"
        else:
            with pytest.raises(TobanError) as caught:
                await unary(stub.Ping, pb.PingRequest(), timeout=5)
            assert caught.value.code is ErrorCode.UNAVAILABLE
    await channels.close()


async def test_a_name_that_is_none_opens_no_channel(tls: Path) -> None:
    channels = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain="toban.internal")
    for name in ("executor/", "executor/default", "coordinator/pci"):
        with pytest.raises(TobanError) as caught:
            channels.get("127.0.0.1:1", name)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    await channels.close()
