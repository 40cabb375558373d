"""The state of the archive, asked of log-archivers over real mTLS: people share one call and its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toban_coordinator.adapters.archivers import KEPT_SECONDS, Archivers
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_testing.clock import FakeClock
from toban_transport.channel import ChannelPool
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"


class Archive(logs_pb2_grpc.LogArchiveServicer):
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.failure: TobanError | None = None

    async def Status(self, _request: Any, _context: Any) -> Any:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return logs_pb2.ArchiveStatusResponse(retention_days=self.calls)


@pytest.fixture
async def served(tls: Path) -> AsyncIterator[tuple[Archive, str]]:
    server = build_server(tls=TlsFiles(tls / "log-archiver"), trust_domain=DOMAIN, clock=SystemClock())
    archive = Archive()
    server.add(logs_pb2_grpc.add_LogArchiveServicer_to_server, archive)
    port = await server.start("127.0.0.1", 0)
    yield archive, f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture
async def channels(tls: Path) -> AsyncIterator[ChannelPool]:
    pool = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN)
    yield pool
    await pool.close()


async def test_an_answer_is_kept_for_a_while(served: Any, channels: Any) -> None:
    _, address = served
    clock = FakeClock()
    archivers = Archivers(channels=channels, addresses=[address], clock=clock)
    assert [(await archivers.status()).retention_days for _ in range(3)] == [1, 1, 1]
    await clock.advance(KEPT_SECONDS)
    assert (await archivers.status()).retention_days == 2


async def test_a_refusal_of_the_coordinator_is_none_of_the_person(served: Any, channels: Any) -> None:
    archive, address = served
    archive.failure = TobanError(ErrorCode.PERMISSION_DENIED, "service 'coordinator' may not call it")
    with pytest.raises(TobanError, match="release before refuse it: service 'coordinator' may not") as refusal:
        await Archivers(channels=channels, addresses=[address], clock=FakeClock()).status()
    assert refusal.value.code is ErrorCode.UNAVAILABLE


async def test_a_coordinator_that_knows_no_log_archiver_names_the_setting(channels: Any) -> None:
    archivers = Archivers(channels=channels, addresses=[], clock=FakeClock())
    with pytest.raises(TobanError, match="SCHEDULER_LOG_ARCHIVERS") as refusal:
        await archivers.status()
    assert refusal.value.code is ErrorCode.UNAVAILABLE
