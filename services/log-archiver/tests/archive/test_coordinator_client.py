"""What the archiver asks coordinators, over real mTLS: settings that it follows, attempts that have ended, another one when one is away."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_log_archiver.adapters.coordinator_client import CoordinatorClient
from toban_log_archiver.config import LogArchiverConfig
from toban_log_archiver.main import serve
from toban_log_archiver.ports.archive_gateway import Ended
from toban_proto.v1 import common_pb2, logs_pb2, logs_pb2_grpc
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import SystemClock
from toban_runtime.lifecycle import Stop
from toban_runtime.settings_watch import SettingsWatch
from toban_testing.log_readers import read_ticket
from toban_testing.waiting import until_async
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream, unary
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"


class Coordinator(rpc.ArchiveGatewayServicer):
    """Says that odd runs have ended, and sends what `changes` gets; None ends the stream."""

    def __init__(self) -> None:
        self.changes: asyncio.Queue[dict[str, str] | None] = asyncio.Queue()
        self.asked: list[Any] = []

    async def ListSealed(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        odd = [key for key in request.keys if key.run_id % 2]
        return pb.ListSealedResponse(
            attempts=[
                pb.SealedAttempt(
                    key=common_pb2.AttemptKey(run_id=key.run_id, token=key.token), last_seq=5, complete=key.run_id == 1
                )
                for key in odd
            ]
        )

    async def WatchSettings(self, request: Any, context: Any) -> AsyncIterator[Any]:
        version = 0
        while True:
            values = await self.changes.get()
            if values is None:
                return
            version += 1
            yield pb.WatchSettingsResponse(version=version, values_json=values)


@pytest.fixture
async def coordinator(tls: Path) -> AsyncIterator[tuple[Coordinator, str]]:
    server = build_server(tls=TlsFiles(tls / "coordinator"), trust_domain=DOMAIN, clock=SystemClock())
    servicer = Coordinator()
    server.add(rpc.add_ArchiveGatewayServicer_to_server, servicer)
    port = await server.start("127.0.0.1", 0)
    yield servicer, f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture
async def channels(tls: Path) -> AsyncIterator[ChannelPool]:
    pool = ChannelPool(tls=TlsFiles(tls / "log-archiver"), trust_domain=DOMAIN)
    yield pool
    await pool.close()


async def test_ended_attempts_from_the_first_that_answers(coordinator: Any, channels: Any, free_port: int) -> None:
    servicer, address = coordinator
    client = CoordinatorClient(channels=channels, addresses=[f"127.0.0.1:{free_port}", address], clock=SystemClock())
    found = await client.ended(date(2026, 11, 1), [AttemptKey(run, 10) for run in (1, 2, 3)], off_seconds=60.0)
    assert found == [Ended(AttemptKey(1, 10), 5), Ended(AttemptKey(3, 10), None)]
    assert (servicer.asked[0].log_day, servicer.asked[0].off_seconds) == ("2026-11-01", 60.0)


async def test_without_an_address_the_error_says_what_to_set(channels: Any) -> None:
    client = CoordinatorClient(channels=channels, addresses=[], clock=SystemClock())
    with pytest.raises(TobanError, match="SCHEDULER_COORDINATORS") as caught:
        await client.ended(date(2026, 11, 1), [], off_seconds=60.0)
    assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_the_settings_of_this_moment(coordinator: Any, channels: Any, free_port: int) -> None:
    servicer, address = coordinator
    client = CoordinatorClient(channels=channels, addresses=[f"127.0.0.1:{free_port}", address], clock=SystemClock())
    servicer.changes.put_nowait({"log_retention_days_archive": "30"})
    assert (await client.settings_now())["log_retention_days_archive"] == 30
    with pytest.raises(TobanError) as caught:
        await CoordinatorClient(
            channels=channels, addresses=[f"127.0.0.1:{free_port}"], clock=SystemClock()
        ).settings_now()
    assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_a_coordinator_that_is_stopping_is_named(coordinator: Any, channels: Any) -> None:
    servicer, address = coordinator
    client = CoordinatorClient(channels=channels, addresses=[address], clock=SystemClock())
    servicer.changes.put_nowait(None)
    with pytest.raises(TobanError, match=f"coordinator at {address} ended the call") as caught:
        await client.settings_now()
    assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_settings_are_followed(coordinator: Any, channels: Any) -> None:
    servicer, address = coordinator
    changed = asyncio.Event()
    watch = SettingsWatch(
        source=CoordinatorClient(channels=channels, addresses=[address], clock=SystemClock()),
        clock=SystemClock(),
        on_version=lambda _version: changed.set(),
    )
    task = asyncio.create_task(watch.run())
    assert (watch.received, watch.known["log_retention_days_db"]) == (False, 7)
    for days in (30, 2):
        changed.clear()
        servicer.changes.put_nowait({"log_retention_days_db": str(days), "of_a_later_release": "1", "broken": "{"})
        async with asyncio.timeout(60):
            await changed.wait()
        assert (watch.received, watch.known["log_retention_days_db"]) == (True, days)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_service_archives_by_itself_and_reads_what_it_archived(
    world: Any, coordinator: Any, channels: Any, s3: Any, tls: Path, tmp_path: Path
) -> None:
    servicer, address = coordinator
    seqs = list(range(1, 40))
    await world.store(1, 10, seqs)
    await world.store(1, 10, [], seal=39)
    servicer.changes.put_nowait({"log_retention_days_db": "7"})
    ready = tmp_path / "ready.json"
    config = LogArchiverConfig(
        database_url=world.url,
        tls_dir=tls / "log-archiver",
        ready_file=ready,
        coordinators=(address,),
        s3_endpoint_url=s3.s3_endpoint_url,
        s3_bucket=world.bucket_name,
        s3_access_key=s3.s3_access_key,
        s3_secret_key=s3.s3_secret_key,
    )
    stop = Stop()
    task = asyncio.create_task(serve(config, stop))
    admin = ChannelPool(tls=TlsFiles(tls / "admin-cli"), trust_domain=DOMAIN)
    try:
        await until_async(world.has_day, lambda there: task.done() or not there)
        channel = admin.get(f"127.0.0.1:{json.loads(ready.read_text())['grpc_port']}", "log-archiver")
        wanted = logs_pb2.ReadLogRequest(run_id=1, ticket=read_ticket(tls, 1))
        read = stream(logs_pb2_grpc.LogReaderStub(channel).Read, wanted, timeout=60)
        assert [line.seq async for answer in read for line in answer.lines] == seqs
        request = logs_pb2.ArchiveStatusRequest()
        found = await unary(logs_pb2_grpc.LogArchiveStub(channel).Status, request, timeout=60)
        assert [(day.log_day, day.archived_tokens) for day in found.days] == [(world.old.isoformat(), 1)]
    finally:
        await admin.close()
        stop.request("test")
        await task
