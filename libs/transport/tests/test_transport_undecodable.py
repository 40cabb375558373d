"""Requests that are no message of their type: parsed only for a caller who may make the call, refused with our error and without a traceback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_transport.errors import from_rpc_error

# A field of wire type 7, which no message has.
JUNK = b"\xff" * 4096
PING = "/toban_proto.v1.WorkerService/Ping"
APPEND = "/toban_proto.v1.LogIngest/Append"
READ = "/toban_proto.v1.LogReader/Read"


async def ping(site: Any, caller: str, raw: bytes = JUNK) -> TobanError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await site.log_channel(caller).unary_unary(PING)(raw, timeout=20)
    assert dict(caught.value.trailing_metadata() or ())["toban-code"]
    return from_rpc_error(caught.value)


async def test_junk_is_an_invalid_argument_with_a_code_and_no_traceback(
    site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        error = await ping(site, "coordinator")
        assert error.code is ErrorCode.INVALID_ARGUMENT
        assert error.message == (
            f"the 4096 bytes sent to {PING} are no request of its type; send what the proto of this version defines"
        )
    lines = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert len(lines) == 1, "one line for twenty calls"
    assert "its request cannot be parsed" in str(lines[0].msg)
    assert "Traceback" not in caplog.text and not any(record.exc_info for record in caplog.records)


async def test_the_largest_junk_and_calls_after_it(site: Any) -> None:
    error = await ping(site, "coordinator", b"\xff" * (4 * 1024 * 1024 - 64))
    assert error.code is ErrorCode.INVALID_ARGUMENT
    answer = await site.log_channel("coordinator").unary_unary(PING)(b"", timeout=20)
    assert b"i1" in answer


@pytest.mark.parametrize("caller", ["executor", "log-archiver", "admin-web", "admin-cli", "external-worker"])
async def test_the_certificate_is_decided_before_the_bytes(site: Any, caller: str) -> None:
    error = await ping(site, caller)
    assert error.code is ErrorCode.PERMISSION_DENIED
    assert "may not call" in error.message


async def test_junk_in_streams(site: Any) -> None:
    async def requests() -> AsyncIterator[bytes]:
        yield b"\x10\x07"
        yield JUNK

    stub = site.log_channel("executor").stream_stream(APPEND)
    call, answers = stub(requests(), timeout=20), []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for answer in call:
            answers.append(answer)
    assert from_rpc_error(caught.value).code is ErrorCode.INVALID_ARGUMENT
    assert len(answers) == 1, "the message before it was served"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in site.log_channel("admin-cli").unary_stream(READ)(JUNK, timeout=20):
            pass
    assert from_rpc_error(caught.value).code is ErrorCode.INVALID_ARGUMENT


async def test_junk_is_counted_by_its_code(site: Any) -> None:
    await ping(site, "coordinator")
    labels = {"method": PING, "code": "INVALID_ARGUMENT"}
    assert (metrics.REGISTRY.get_sample_value("toban_rpc_total", labels) or 0) >= 1
