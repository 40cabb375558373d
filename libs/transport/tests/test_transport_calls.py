"""What happens to a call that got in: deadlines, errors, streams, health, and a server's start and stop."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from toban_domain.errors import GRPC_STATUS, ErrorCode, TobanError
from toban_observability import metrics
from toban_proto.v1 import executor_pb2, executor_pb2_grpc, logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_testing.clock import FakeClock
from toban_transport.authz import METHOD_RULES
from toban_transport.channel import DRAIN_SECONDS, IDLE_SECONDS, ChannelPool
from toban_transport.client_calls import duplex, stream, unary
from toban_transport.errors import from_rpc_error, to_status
from toban_transport.server import MAX_CONNECTION_AGE_GRACE_SECONDS, MAX_CONNECTION_AGE_SECONDS, build_server
from toban_transport.tls import TlsFiles

PING = executor_pb2.PingRequest()


async def ping_error(site: Any, raised: BaseException) -> TobanError:
    async def on_ping(_context: Any) -> None:
        raise raised

    site.worker.on_ping = on_ping
    with pytest.raises(TobanError) as caught:
        await unary(site.as_service("coordinator").Ping, PING, timeout=60)
    return caught.value


async def test_a_call_without_deadline_is_refused(site: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await site.as_service("coordinator").Ping(PING)
    error = from_rpc_error(caught.value)
    assert error.code is ErrorCode.DEADLINE_REQUIRED
    assert "WorkerService/Ping" in error.message


async def test_every_code_has_a_status_and_survives_the_wire(site: Any, subtests: pytest.Subtests) -> None:
    for code in ErrorCode:
        with subtests.test(code.value):
            sent = TobanError(code, f"what, where, how: ü {code}", detail={"path": "jobs[0].name", "n": 2**62})
            assert to_status(sent)[0].name == GRPC_STATUS[code]
            got = await ping_error(site, sent)
            assert (got.code, got.message, got.detail) == (sent.code, sent.message, sent.detail)


async def test_detail_that_is_too_large_is_dropped_and_the_code_stays(site: Any) -> None:
    got = await ping_error(site, TobanError(ErrorCode.CONFLICT, "x" * 5000, detail={"a": "y" * 9000}))
    assert (got.code, got.detail, len(got.message)) == (ErrorCode.CONFLICT, {}, 1000)


async def test_an_unexpected_error_shows_an_id_and_nothing_else(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    got = await ping_error(site, RuntimeError("postgresql://u:hunter2@db/x"))
    assert got.code is ErrorCode.INTERNAL
    assert "hunter2" not in got.message
    assert got.detail["error_id"] in got.message
    assert got.detail["error_id"] in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_method_that_is_not_written_answers_unimplemented(site: Any) -> None:
    with pytest.raises(TobanError) as caught:
        await unary(site.as_service("coordinator").Revoke, executor_pb2.RevokeRequest(), timeout=60)
    assert caught.value.code is ErrorCode.UNIMPLEMENTED


async def test_a_handler_that_lasts_past_the_callers_deadline_is_cancelled(site: Any) -> None:
    ended = asyncio.Event()

    async def on_ping(_context: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    site.worker.on_ping = on_ping
    with pytest.raises(TobanError) as caught:
        await unary(site.as_service("coordinator").Ping, PING, timeout=0.2)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(ended.wait(), 60)


async def test_the_server_ends_a_call_at_the_methods_maximum(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from toban_transport import deadline

    monkeypatch.setattr(deadline, "MAX_SECONDS", {"/toban_proto.v1.WorkerService/Ping": 0.1})

    async def on_ping(_context: Any) -> None:
        await asyncio.Event().wait()

    site.worker.on_ping = on_ping
    with pytest.raises(TobanError, match=r"may last 0\.1 s") as caught:
        await unary(site.as_service("coordinator").Ping, PING, timeout=60)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED


async def test_streams_both_ways(site: Any) -> None:
    async def requests() -> AsyncIterator[Any]:
        for number in (7, 8, 9):
            yield logs_pb2.AppendRequest(request_id=number)

    stub = logs_pb2_grpc.LogIngestStub(site.log_channel("executor"))
    got = [answer.request_id async for answer in duplex(stub.Append, requests(), timeout=60)]
    assert got == [7, 8, 9]


async def test_a_stream_refuses_the_wrong_caller_and_carries_errors(site: Any) -> None:
    wrong = logs_pb2_grpc.LogReaderStub(site.log_channel("executor"))
    with pytest.raises(TobanError, match="may not call"):
        async for _ in stream(wrong.Read, logs_pb2.ReadLogRequest(run_id=1), timeout=60):
            pass
    right = logs_pb2_grpc.LogReaderStub(site.log_channel("admin-cli"))
    tokens = [a.token async for a in stream(right.Read, logs_pb2.ReadLogRequest(run_id=1), timeout=60)]
    assert tokens == [1, 2, 3]
    with pytest.raises(TobanError) as caught:
        async for _ in stream(right.Read, logs_pb2.ReadLogRequest(run_id=404), timeout=60):
            pass
    assert caught.value.code is ErrorCode.RUN_NOT_FOUND


async def test_health_is_for_our_services_and_follows_the_server(site: Any) -> None:
    stub = health_pb2_grpc.HealthStub(site.log_channel("external-worker"))
    kinds, watched = health_pb2.HealthCheckResponse, []
    assert (await unary(stub.Check, health_pb2.HealthCheckRequest(), timeout=60)).status == kinds.SERVING
    async for answer in stream(stub.Watch, health_pb2.HealthCheckRequest(), timeout=60):
        watched.append(answer.status)
        if len(watched) == 2:
            break
        await site.server.set_serving(False)
    assert watched == [kinds.SERVING, kinds.NOT_SERVING]


async def test_calls_are_counted_by_method_and_code(site: Any) -> None:
    await unary(site.as_service("coordinator").Ping, PING, timeout=60)
    with pytest.raises(TobanError):
        await unary(site.as_service("executor").Ping, PING, timeout=60)
    text = metrics.exposition().decode()
    method = 'method="/toban_proto.v1.WorkerService/Ping"'
    assert f'toban_rpc_total{{code="OK",{method}}}' in text
    assert f'toban_rpc_total{{code="PERMISSION_DENIED",{method}}}' in text
    assert f"toban_rpc_seconds_count{{{method}}}" in text


async def test_a_method_without_a_rule_stops_the_start(tls: Path) -> None:
    rules = {m: callers for m, callers in METHOD_RULES.items() if m != "/toban_proto.v1.WorkerService/Revoke"}
    server = build_server(
        tls=TlsFiles(tls / "executor"), trust_domain="toban.internal", clock=SystemClock(), rules=rules
    )
    server.add(executor_pb2_grpc.add_WorkerServiceServicer_to_server, executor_pb2_grpc.WorkerServiceServicer())
    with pytest.raises(TobanError, match="WorkerService/Revoke") as caught:
        await server.start("127.0.0.1", 0)
    assert caught.value.exit_code == 78


async def test_a_rule_with_no_callers_stops_the_start(tls: Path) -> None:
    rules = dict(METHOD_RULES) | {"/grpc.health.v1.Health/Check": frozenset()}
    server = build_server(
        tls=TlsFiles(tls / "executor"), trust_domain="toban.internal", clock=SystemClock(), rules=rules
    )
    with pytest.raises(TobanError, match="Health/Check"):
        await server.start("127.0.0.1", 0)


async def test_a_taken_port_stops_the_start_with_one_line(site: Any, tls: Path) -> None:
    server = build_server(tls=TlsFiles(tls / "executor"), trust_domain="toban.internal", clock=SystemClock())
    with pytest.raises(TobanError, match="cannot bind") as caught:
        await server.start("127.0.0.1", int(site.address.rpartition(":")[2]))
    assert caught.value.exit_code == 78


async def test_a_servicer_is_added_once(tls: Path) -> None:
    server = build_server(tls=TlsFiles(tls / "executor"), trust_domain="toban.internal", clock=SystemClock())
    servicer = executor_pb2_grpc.WorkerServiceServicer()
    server.add(executor_pb2_grpc.add_WorkerServiceServicer_to_server, servicer)
    with pytest.raises(TobanError, match="added twice"):
        server.add(executor_pb2_grpc.add_WorkerServiceServicer_to_server, servicer)


async def test_stop_lets_a_call_finish_within_the_grace(tls: Path) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    class Slow(executor_pb2_grpc.WorkerServiceServicer):
        async def Ping(self, request: Any, context: Any) -> Any:
            entered.set()
            await release.wait()
            return executor_pb2.PingResponse(incarnation="late")

    server = build_server(tls=TlsFiles(tls / "executor"), trust_domain="toban.internal", clock=SystemClock())
    server.add(executor_pb2_grpc.add_WorkerServiceServicer_to_server, Slow())
    port = await server.start("127.0.0.1", 0)
    pool = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain="toban.internal")
    stub = executor_pb2_grpc.WorkerServiceStub(pool.get(f"127.0.0.1:{port}", "executor"))
    call = asyncio.ensure_future(unary(stub.Ping, PING, timeout=60))
    await entered.wait()
    stopping = asyncio.ensure_future(server.stop(10))
    release.set()
    assert (await call).incarnation == "late"
    await stopping
    await pool.close()


def test_a_code_of_a_newer_server_falls_back_to_its_status() -> None:
    trailing = grpc.aio.Metadata(("toban-code", "FROM_THE_FUTURE"), ("toban-detail", "{broken"))
    error = grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), trailing, "gone", None)
    assert from_rpc_error(error).code is ErrorCode.NOT_FOUND


def test_fork_support_is_off_before_grpc_loads() -> None:
    import os

    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0"


async def test_unused_channels_are_dropped_and_their_streams_go_on(tls: Path) -> None:
    """Executors come and go, each at a new port: what a coordinator keeps of them is bounded."""
    clock = FakeClock()
    pool = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain="toban.internal", clock=clock)
    make = executor_pb2_grpc.WorkerServiceStub
    kept, left = pool.stub(make, "127.0.0.1:1", "executor"), pool.get("127.0.0.1:2", "executor")
    pool.stub(make, "127.0.0.1:2", "executor")
    await clock.advance(IDLE_SECONDS - 1)
    assert pool.stub(make, "127.0.0.1:1", "executor") is kept
    await clock.advance(2)
    assert pool.stub(make, "127.0.0.1:1", "executor") is kept
    await clock.advance(DRAIN_SECONDS - 1)
    assert left.get_state() is not grpc.ChannelConnectivity.SHUTDOWN, "a call on it may still be under way"
    await clock.advance(2)
    assert left.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert pool.get("127.0.0.1:2", "executor") is not left
    await clock.advance(IDLE_SECONDS * 2)
    for port in range(3, 6):
        pool.stub(make, f"127.0.0.1:{port}", "executor")
    assert len(pool._channels) == len(pool._stubs) == 3
    await pool.close()


def test_a_channel_is_drained_for_longer_than_a_connection_lives() -> None:
    assert DRAIN_SECONDS > 1.1 * MAX_CONNECTION_AGE_SECONDS + MAX_CONNECTION_AGE_GRACE_SECONDS
