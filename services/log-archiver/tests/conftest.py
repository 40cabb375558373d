"""A log-archiver as a whole (real mTLS, real PostgreSQL), and callers with certificates of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard

from toban_domain.incarnation_key import key_metadata
from toban_log_archiver.config import LogArchiverConfig
from toban_log_archiver.main import Factories, serve
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_proto.v1.common_pb2 import LogTicket, ReadTicket
from toban_runtime.clock import Clock, SystemClock
from toban_runtime.lifecycle import Stop
from toban_testing.admin_port import token_file
from toban_testing.clock import today
from toban_testing.waiting import until
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import duplex, stream, unary
from toban_transport.log_ticket import ANYBODY, TicketHolder, TicketSigner
from toban_transport.read_ticket import ReadTicketSigner
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"
INCARNATION = "11111111-2222-4333-8444-555555555555"
NANOS = 1_800_000_000_000_000_000


def frame(seqs: Sequence[int], *, stream: int = 1, text: Callable[[int], bytes] = b"line %d".__mod__) -> bytes:
    lines = [
        logs_pb2.LogLine(seq=seq, at_unix_nanos=NANOS + seq, stream=stream, text=text(seq))  # type: ignore[arg-type]
        for seq in seqs
    ]
    return zstandard.compress(logs_pb2.LogLines(lines=lines).SerializeToString())


def chunk(run_id: int, token: int, seqs: Sequence[int], *, stream: int = 1, **given: Any) -> logs_pb2.LogChunk:
    claims: dict[str, Any] = {"seq_from": seqs[0], "seq_to": seqs[-1], "line_count": len(seqs)} | given
    claims.setdefault("data", frame(seqs, stream=stream))
    return logs_pb2.LogChunk(run_id=run_id, token=token, stream=stream, **claims)  # type: ignore[arg-type]


@dataclass
class Archiver:
    """A running log-archiver, as its callers see it."""

    domain = DOMAIN
    chunk = staticmethod(chunk)
    frame = staticmethod(frame)

    address: str
    admin_port: int
    tls: Path
    today: date
    _pools: list[ChannelPool] = field(default_factory=list)

    def channel(self, caller: str) -> Any:
        pool = ChannelPool(tls=TlsFiles(self.tls / caller), trust_domain=DOMAIN)
        self._pools.append(pool)
        return pool.get(self.address, "log-archiver")

    def ticket(
        self,
        run_id: int,
        token: int,
        *,
        day: date | None = None,
        signer: str = "coordinator",
        holder: TicketHolder = ANYBODY,
    ) -> LogTicket:
        return TicketSigner(TlsFiles(self.tls / signer)).sign(
            run_id=run_id, token=token, incarnation=INCARNATION, log_day=day or self.today, holder=holder
        )

    async def append(
        self, *requests: logs_pb2.AppendRequest, key: str = "", caller: str = "executor"
    ) -> list[logs_pb2.AppendResponse]:
        async def send() -> AsyncIterator[logs_pb2.AppendRequest]:
            for number, request in enumerate(requests, start=1):
                request.request_id = number
                yield request

        stub = logs_pb2_grpc.LogIngestStub(self.channel(caller))
        metadata = key_metadata(INCARNATION, key) if key else ()
        return [answer async for answer in duplex(stub.Append, send(), timeout=60, metadata=metadata)]

    async def store(self, run_id: int, token: int, *chunks: logs_pb2.LogChunk, seal: int | None = None) -> None:
        """Appends with a good ticket and sees that nothing is refused."""
        seals = [] if seal is None else [logs_pb2.Seal(run_id=run_id, token=token, last_seq=seal)]
        request = logs_pb2.AppendRequest(tickets=[self.ticket(run_id, token)], chunks=chunks, seals=seals)
        answers = await self.append(request)
        assert [list(answer.refusals) for answer in answers] == [[]]

    def read_ticket(
        self, *run_ids: int, signer: str = "coordinator", age: timedelta = timedelta(0), tls: Path | None = None
    ) -> ReadTicket:
        """A ticket for these runs, signed `age` ago."""
        files = TlsFiles((tls or self.tls) / signer)
        now = SystemClock().wall() - age
        return ReadTicketSigner(files).sign(actor="user ada", run_ids=run_ids, now=now)

    def read(self, run_id: int, **given: Any) -> AsyncIterator[logs_pb2.ReadLogResponse]:
        stub = logs_pb2_grpc.LogReaderStub(self.channel("admin-cli"))
        given.setdefault("ticket", self.read_ticket(run_id))
        return stream(stub.Read, logs_pb2.ReadLogRequest(run_id=run_id, **given), timeout=60)

    async def lines(self, run_id: int, **given: Any) -> list[tuple[int, int]]:
        """(token, seq) of every line that Read gives."""
        return [(answer.token, line.seq) async for answer in self.read(run_id, **given) for line in answer.lines]

    async def describe(self, run_id: int) -> list[logs_pb2.AttemptLog]:
        stub = logs_pb2_grpc.LogReaderStub(self.channel("admin-web"))
        request = logs_pb2.DescribeLogRequest(run_id=run_id, ticket=self.read_ticket(run_id))
        answer = await unary(stub.Describe, request, timeout=60)
        return list(answer.attempts)

    async def close(self) -> None:
        for pool in self._pools:
            await pool.close()


@asynccontextmanager
async def running(
    url: str, tls: Path, folder: Path, *, clock: Clock | None = None, **given: Any
) -> AsyncIterator[Archiver]:
    day, ready = today(), folder / "ready.json"
    ready.unlink(missing_ok=True)
    config = LogArchiverConfig(
        database_url=url, tls_dir=tls / "log-archiver", ready_file=ready, admin_token_file=token_file(folder), **given
    )
    stop = Stop()
    factories = Factories() if clock is None else Factories(clock=lambda: clock)
    task = asyncio.create_task(serve(config, stop, factories=factories))
    try:
        await until(lambda: ready.exists() or task.done())
        ports = json.loads(ready.read_text())
        archiver = Archiver(f"127.0.0.1:{ports['grpc_port']}", ports["admin_port"], tls, day)
        yield archiver
        await archiver.close()
    finally:
        stop.request("test")
        await task


class MovedClock(SystemClock):
    """The time of day can be moved."""

    ahead = timedelta(0)

    def wall(self) -> datetime:
        return super().wall() + self.ahead


@pytest.fixture
def moved_clock() -> MovedClock:
    """The clock of `archiver`."""
    return MovedClock()


@pytest.fixture
async def archiver(
    log_archiver_url: str, tls: Path, tmp_path: Path, moved_clock: MovedClock
) -> AsyncIterator[Archiver]:
    async with running(log_archiver_url, tls, tmp_path, clock=moved_clock) as one:
        yield one


@pytest.fixture
async def second_archiver(log_archiver_url: str, tls: Path, tmp_path: Path) -> AsyncIterator[Archiver]:
    folder = tmp_path / "second"
    folder.mkdir()
    async with running(log_archiver_url, tls, folder) as one:
        yield one
