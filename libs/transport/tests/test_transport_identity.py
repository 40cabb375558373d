"""Who gets in: real certificates against a real server on loopback."""

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import log_throttle
from toban_proto.v1 import executor_pb2, executor_pb2_grpc
from toban_transport.channel import open_sync_channel
from toban_transport.client_calls import unary, unary_sync
from toban_transport.server import metadata, peer_service
from toban_transport.tls import TlsFiles

PING = executor_pb2.PingRequest()
OURS = "spiffe://toban.internal/coordinator"
DNS = "coordinator.toban.internal"


async def refusal(stub: Any, **options: Any) -> TobanError:
    """The error of a Ping that must not pass."""
    with pytest.raises(TobanError) as caught:
        await unary(stub.Ping, PING, timeout=60, **options)
    return caught.value


@pytest.mark.seed(77)
async def test_the_allowed_caller_gets_in_and_the_handler_knows_it(site: Any) -> None:
    seen: list[Any] = []

    async def on_ping(context: Any) -> None:
        seen.append((peer_service(context), metadata(context)["toban-incarnation"]))

    site.worker.on_ping = on_ping
    answer = await unary(site.as_service("coordinator").Ping, PING, timeout=60, metadata=[("toban-incarnation", "x")])
    assert answer.incarnation == "i1"
    assert seen == [("coordinator", "x")]


@pytest.mark.parametrize("caller", ["executor", "log-archiver", "admin-web", "admin-cli", "external-worker"])
async def test_another_services_certificate_is_refused(site: Any, caller: str) -> None:
    error = await refusal(site.as_service(caller))
    assert error.code is ErrorCode.PERMISSION_DENIED
    assert caller in error.message and "WorkerService/Ping" in error.message


@pytest.mark.seed(77)
async def test_no_certificate_is_refused_in_the_handshake(site: Any, tls: Path) -> None:
    credentials = grpc.ssl_channel_credentials(root_certificates=(tls / "ca" / "ca.crt").read_bytes())
    options = [("grpc.ssl_target_name_override", "executor.toban.internal")]
    async with grpc.aio.secure_channel(site.address, credentials, options=options) as channel:
        error = await refusal(executor_pb2_grpc.WorkerServiceStub(channel))
    assert error.code is ErrorCode.UNAVAILABLE
    assert "certificate" in error.message


@pytest.mark.seed(77)
async def test_plaintext_is_refused(site: Any) -> None:
    async with grpc.aio.insecure_channel(site.address) as channel:
        error = await refusal(executor_pb2_grpc.WorkerServiceStub(channel))
    assert error.code is ErrorCode.UNAVAILABLE


async def test_another_authoritys_certificate_is_refused_in_the_handshake(site: Any, forge: Any) -> None:
    error = await refusal(site.stub(forge([OURS], [DNS], own_ca=True)))
    assert error.code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("uris", "dns", "common_name"),
    [
        ([], [DNS], "x"),
        ([], [DNS], "coordinator"),
        ([], [DNS], OURS),
        ([OURS, "spiffe://toban.internal/executor"], [DNS], "x"),
        ([OURS, "https://elsewhere.example/"], [DNS], "x"),
        (["spiffe://elsewhere.internal/coordinator"], [DNS], "x"),
        (["spiffe://toban.internal/coordinator/extra"], [DNS], "x"),
        (["spiffe://toban.internal/root"], [DNS], "x"),
        (["https://toban.internal/coordinator"], [DNS], "x"),
    ],
    ids=[
        "dns-only",
        "common-name",
        "id-as-common-name",
        "two-uris",
        "two-kinds-of-uri",
        "other-domain",
        "longer-path",
        "unknown",
        "scheme",
    ],
)
async def test_a_certificate_of_our_ca_without_exactly_one_good_id_is_refused(
    site: Any, forge: Any, uris: list[str], dns: list[str], common_name: str
) -> None:
    error = await refusal(site.stub(forge(uris, dns, common_name=common_name)))
    assert error.code is ErrorCode.PERMISSION_DENIED, error.message


async def test_a_client_refuses_a_server_that_is_another_service(site: Any, tls: Path) -> None:
    error = await refusal(site.stub(TlsFiles(tls / "coordinator"), service="log-archiver"))
    assert error.code is ErrorCode.UNAVAILABLE
    assert "names another service" in error.message


async def test_a_client_names_a_service_that_exists(site: Any, tls: Path) -> None:
    with pytest.raises(TobanError, match="is not a service"):
        site.stub(TlsFiles(tls / "coordinator"), service="executer")


async def test_an_address_without_a_server_is_named(site: Any, tls: Path, free_port: int) -> None:
    site.address = f"127.0.0.1:{free_port}"
    error = await refusal(site.as_service("coordinator"))
    assert error.code is ErrorCode.UNAVAILABLE
    assert "cannot reach" in error.message


async def test_the_blocking_channel_carries_the_same_identity(site: Any, tls: Path) -> None:
    import asyncio

    def call(caller: str) -> str:
        with open_sync_channel(site.address, "executor", TlsFiles(tls / caller), "toban.internal") as channel:
            stub = executor_pb2_grpc.WorkerServiceStub(channel)
            return str(unary_sync(stub.Ping, PING, timeout=60).incarnation)

    assert await asyncio.to_thread(call, "coordinator") == "i1"
    with pytest.raises(TobanError, match="may not call"):
        await asyncio.to_thread(call, "admin-cli")


async def test_a_caller_that_is_refused_again_and_again_is_logged_once_with_a_count(
    site: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(name: str) -> None:
        with pytest.raises(TobanError, match="may not call"):
            await unary(site.as_service(name).Ping, executor_pb2.PingRequest(), timeout=60)

    for name in ("executor", "executor", "log-archiver", "executor"):
        await refused(name)
    assert caplog.text.count("call refused") == 2
    assert caplog.text.count("spiffe://toban.internal/log-archiver") == 1
    monkeypatch.setattr(log_throttle, "INTERVAL_SECONDS", 0.0)
    await refused("executor")
    assert caplog.text.count("call refused") == 3 and "'suppressed': 2" in caplog.text
