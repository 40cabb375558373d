"""Replicas from blocking code: the next one when one is away or silent, new certificates, threads, the end."""

import asyncio
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import executor_pb2, executor_pb2_grpc, logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_stack import certs
from toban_transport.replica_client import Fleet
from toban_transport.tls import TlsFiles

PING = executor_pb2.PingRequest()


def ping(channel: Any) -> Any:
    return executor_pb2_grpc.WorkerServiceStub(channel).Ping


def read(channel: Any) -> Any:
    return logs_pb2_grpc.LogReaderStub(channel).Read


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def fleet(site: Any, *addresses: str, caller: str = "coordinator") -> Fleet:
    return Fleet(
        service="executor",
        addresses=[*addresses, site.address],
        tls=TlsFiles(site.tls / caller),
        trust_domain="toban.internal",
        hint="remedy it",
    )


async def test_the_next_one_answers_when_one_is_away(site: Any, free_port: int) -> None:
    away = f"127.0.0.1:{free_port}"
    many = fleet(site, away)
    for _ in range(2):
        answer = await asyncio.to_thread(many.call, ping, PING, timeout=60)
        assert answer.incarnation == "i1"
    assert many.addresses == (away, site.address)
    await site.server.set_serving(False)
    assert not await asyncio.to_thread(many.serving, site.address, timeout=60)
    await site.server.set_serving(True)
    assert await asyncio.to_thread(many.serving, site.address, timeout=60)
    assert not await asyncio.to_thread(many.serving, away, timeout=60)
    many.close()


async def test_one_that_came_back_is_found_at_once(site: Any) -> None:
    """A connection that failed waits up to two seconds before it tries again; a call does not wait for that."""
    many = Fleet(
        service="executor",
        addresses=[site.address],
        tls=TlsFiles(site.tls / "coordinator"),
        trust_domain="toban.internal",
    )
    assert (await asyncio.to_thread(many.call, ping, PING, timeout=60)).incarnation == "i1"
    host, _, port = site.address.rpartition(":")
    await site.server.stop(0)
    for _ in range(3):
        with pytest.raises(TobanError):
            await asyncio.to_thread(many.call, ping, PING, timeout=60)
    await site.server.start(host, int(port))
    assert (await asyncio.to_thread(many.call, ping, PING, timeout=60)).incarnation == "i1"
    many.close()


async def test_one_that_is_silent_is_left_only_when_the_call_changes_nothing(site: Any, deaf: str) -> None:
    many = fleet(site, deaf)
    with pytest.raises(TobanError) as caught:
        await asyncio.to_thread(many.call, ping, PING, timeout=0.5)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    answer = await asyncio.to_thread(many.call, ping, PING, timeout=60, attempt_seconds=2)
    assert answer.incarnation == "i1"
    many.close()


async def test_all_attempts_together_have_the_timeout(site: Any, deaf: str, at_most: Any) -> None:
    many = Fleet(
        service="executor",
        addresses=[deaf, deaf],
        tls=TlsFiles(site.tls / "coordinator"),
        trust_domain="toban.internal",
    )
    clock = SystemClock()
    began = clock.monotonic()
    with pytest.raises(TobanError) as caught:
        await asyncio.to_thread(many.call, ping, PING, timeout=0.6, attempt_seconds=0.4)
    assert clock.monotonic() - began < at_most(5)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    many.close()


async def test_a_refusal_is_not_asked_again_elsewhere(site: Any) -> None:
    calls = []

    async def refuse(_context: Any) -> None:
        calls.append(1)
        raise TobanError(ErrorCode.CONFLICT, "no")

    site.worker.on_ping = refuse
    many = fleet(site, site.address)
    with pytest.raises(TobanError, match="no"):
        await asyncio.to_thread(many.call, ping, PING, timeout=60)
    assert len(calls) == 1
    many.close()


async def test_without_an_answer_the_error_names_every_address(site: Any, free_port: int) -> None:
    away = f"127.0.0.1:{free_port}"
    many = Fleet(
        service="executor",
        addresses=[away],
        tls=TlsFiles(site.tls / "coordinator"),
        trust_domain="toban.internal",
        hint="remedy it",
    )
    with pytest.raises(TobanError) as caught:
        await asyncio.to_thread(many.call, ping, PING, timeout=60)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.message == f"no executor answers: {away}. remedy it"
    assert caught.value.detail == {"service": "executor", "addresses": [away]}
    many.close()


async def test_streams_begin_elsewhere_too(site: Any, free_port: int, deaf: str) -> None:
    many = fleet(site, f"127.0.0.1:{free_port}", deaf, caller="admin-web")

    def whole() -> list[int]:
        request = logs_pb2.ReadLogRequest(run_id=1)
        return [answer.token for answer in many.stream(read, request, timeout=3, leave_silent=True)]

    assert await asyncio.to_thread(whole) == [1, 2, 3]
    many.close()


async def test_many_threads_share_the_channels(site: Any) -> None:
    many = fleet(site)

    def ask(_: int) -> str:
        return str(many.call(ping, PING, timeout=60).incarnation)

    def all_of_them() -> set[str]:
        with ThreadPoolExecutor(8) as pool:
            return set(pool.map(ask, range(64)))

    assert await asyncio.to_thread(all_of_them) == {"i1"}
    many.close()


async def test_new_certificates_are_used_by_the_next_call(site: Any, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    shutil.copytree(site.tls / "admin-cli", folder)
    many = Fleet(service="executor", addresses=[site.address], tls=TlsFiles(folder), trust_domain="toban.internal")
    with pytest.raises(TobanError, match="may not call"):
        await asyncio.to_thread(many.call, ping, PING, timeout=60)
    shutil.copytree(site.tls / "coordinator", folder, dirs_exist_ok=True)

    def until_allowed() -> str:
        ends_at = SystemClock().monotonic() + 10
        while SystemClock().monotonic() < ends_at:
            try:
                return str(many.call(ping, PING, timeout=60).incarnation)
            except TobanError as error:
                assert "may not call" in error.message
        raise TimeoutError("the new certificate was not taken")

    assert await asyncio.to_thread(until_allowed) == "i1"
    many.close()


async def test_a_certificate_that_is_not_taken_is_told_without_the_words_of_grpc(site: Any, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    shutil.copytree(site.tls / "coordinator", folder)
    certs.make_ca(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "ca.crt", folder / "ca.crt")
    told = []
    for tls, domain in ((site.tls / "coordinator", "other.example"), (folder, "toban.internal")):
        many = Fleet(service="executor", addresses=[site.address], tls=TlsFiles(tls), trust_domain=domain)
        with pytest.raises(TobanError) as caught:
            await asyncio.to_thread(many.call, ping, PING, timeout=60)
        told.append(caught.value.message)
        many.close()
    assert told[0].endswith("(the server's certificate names another service or trust domain; check the address)")
    assert "is not of our CA, or has expired (" in told[1] and "SSL" not in told[1] and "ipv4" not in told[1]


async def test_a_closed_fleet_calls_no_replica(site: Any) -> None:
    many = fleet(site)
    await asyncio.to_thread(many.call, ping, PING, timeout=60)
    many.close()
    with pytest.raises(TobanError) as caught:
        many.call(ping, PING, timeout=60)
    assert caught.value.code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize("call_that_is_cut", [1, 2])
async def test_what_is_closed_while_a_call_begins_stays_closed(site: Any, call_that_is_cut: int) -> None:
    """The call fails like one to a replica that is away; the second chance that those have would go on for ever."""
    many = fleet(site)
    await asyncio.to_thread(many.call, ping, PING, timeout=60)
    calls = 0

    def cut(channel: Any) -> Any:
        real = ping(channel)

        def method(*values: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call_that_is_cut:
                many.close()
            if calls == 1:
                raise TobanError(ErrorCode.UNAVAILABLE, "the channel was closed")
            return real(*values, **options)

        return method

    with pytest.raises((TobanError, ValueError)):
        await asyncio.to_thread(many.call, cut, PING, timeout=60)
    assert calls == call_that_is_cut
