"""The deny-list: a certificate with a serial number of it makes no call, goes on with none, and signs nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toban_domain.deny_list import DENIED, serial_number
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import executor_pb2, logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_stack import certs
from toban_testing.clock import FakeClock
from toban_transport import server_middleware
from toban_transport.client_calls import duplex, unary
from toban_transport.log_ticket import TicketSigner, TicketVerifier
from toban_transport.tls import LOOK_SECONDS, TlsFiles
from toban_transport.tls_reload import certificate_check

PING = executor_pb2.PingRequest()


@pytest.fixture
def tls(tls: Path, tmp_path: Path) -> Path:
    """A copy of the certificates, for changes."""
    return Path(shutil.copytree(tls, tmp_path / "tls"))


def serial(folder: Path) -> str:
    return f"{TlsFiles(folder).current().certificate.serial_number:x}"


def deny(folder: Path, *lines: str) -> None:
    certs.replace_file(folder / DENIED, "".join(f"{line}\n" for line in lines).encode())


async def test_calls_of_a_denied_certificate_end_in_open_connections(site: Any, tls: Path) -> None:
    ping = site.as_service("coordinator").Ping
    await unary(ping, PING, timeout=60)
    deny(tls / "executor", "# stolen", serial(tls / "coordinator").upper(), "")
    await asyncio.sleep(2 * LOOK_SECONDS)
    with pytest.raises(TobanError, match="is on the deny-list; issue another one") as caught:
        await unary(ping, PING, timeout=60)
    assert caught.value.code is ErrorCode.UNAUTHENTICATED
    certs.reissue(tls / "ca", "coordinator", tls / "coordinator")
    await asyncio.sleep(2 * LOOK_SECONDS)
    await unary(site.as_service("coordinator").Ping, PING, timeout=60)
    (tls / "executor" / DENIED).unlink()
    await asyncio.sleep(2 * LOOK_SECONDS)
    await unary(ping, PING, timeout=60)


async def test_a_stream_ends_too(site: Any, tls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_middleware, "DENIED_SECONDS", 0.05)

    async def requests() -> AsyncIterator[Any]:
        yield logs_pb2.AppendRequest(request_id=1)
        await asyncio.Event().wait()

    stub = logs_pb2_grpc.LogIngestStub(site.log_channel("executor"))
    answers = duplex(stub.Append, requests(), timeout=30)
    assert (await anext(answers)).request_id == 1
    deny(tls / "executor", serial(tls / "executor"))
    with pytest.raises(TobanError, match="deny-list"):
        await anext(answers)


async def test_what_it_signed_is_refused(tls: Path) -> None:
    clock = SystemClock()
    ticket = TicketSigner(TlsFiles(tls / "coordinator")).sign(run_id=1, token=1, incarnation="i", log_day="2026-01-01")
    fake = FakeClock(start=clock.wall())
    verifier = TicketVerifier(TlsFiles(tls / "log-archiver", clock=fake), "toban.internal")
    assert verifier.verify(ticket, now=clock.wall()).run_id == 1
    deny(tls / "log-archiver", serial(tls / "coordinator"))
    await fake.advance(1)
    with pytest.raises(TobanError, match="deny-list"):
        verifier.verify(ticket, now=clock.wall())


def test_who_is_on_the_list_shows_it(tls: Path) -> None:
    deny(tls / "executor", serial(tls / "executor"))
    check = certificate_check(TlsFiles(tls / "executor"), SystemClock().wall())
    assert check.status == "error" and "deny-list" in check.value["problem"]


async def test_a_list_that_cannot_be_read_stops_the_start_and_keeps_the_last_good_one(tls: Path) -> None:
    clock = FakeClock(start=SystemClock().wall())
    deny(tls / "executor", "0a:1B", "ff # old laptop")
    files = TlsFiles(tls / "executor", clock=clock)
    assert files.current().denied == {0x0A1B, 0xFF}
    deny(tls / "executor", "0a1b", "coordinator")
    for _ in range(3):
        await clock.advance(1)
        assert files.current().denied == {0x0A1B, 0xFF}
    assert "denied: line 2: 'coordinator' is no serial number" in files.problem
    with pytest.raises(TobanError, match="line 2"):
        TlsFiles(tls / "executor")


@pytest.mark.parametrize("text", ["", ":", "0x1f", "1f ", "g", "f" * 41, "-1"])
def test_what_is_no_serial_number(text: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        serial_number(text)
