"""A database with logs of an old day, a bucket of its own, and archivers over both: what the archive tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from secrets import token_hex
from typing import Any

import boto3
import pytest
import zstandard

from toban_domain.outcome import AttemptKey
from toban_domain.settings import Settings
from toban_log_archiver.adapters.chunk_codec import LogLinesCodec
from toban_log_archiver.adapters.object_store import S3Bucket
from toban_log_archiver.app.archive_pass import ArchiveLimits, Archiver
from toban_log_archiver.app.archive_source import ArchiveSource
from toban_log_archiver.app.archive_steps import StepDeps
from toban_log_archiver.app.combined_source import CombinedSource
from toban_log_archiver.app.database_source import DatabaseSource
from toban_log_archiver.app.followers import Followers
from toban_log_archiver.app.line_reader import ReaderDeps
from toban_log_archiver.app.log_reading import LogReading
from toban_log_archiver.app.pass_report import PassEvent
from toban_log_archiver.decide.stored_chunks import NewChunk
from toban_log_archiver.ports.archive_gateway import Ended
from toban_log_archiver.server.log_reader_service import LogReader
from toban_log_archiver.store import chunks, log_attempts, partitions
from toban_log_archiver.store.log_attempts import TokenNote
from toban_proto.v1 import logs_pb2
from toban_runtime.clock import SystemClock
from toban_store.pool import Pool
from toban_store.tx import autocommit, tx
from toban_testing.clock import today
from toban_testing.kept_sessions import kept_pool

INCARNATION = "11111111-2222-4333-8444-555555555555"
NANOS = 1_800_000_000_000_000_000
AT = datetime(2027, 1, 15, 8, tzinfo=UTC)


def text(run_id: int, token: int, seq: int) -> bytes:
    """The line that must be there: computable from its place."""
    return b"run %d token %d line %d " % (run_id, token, seq) + b"x" * (seq % 7)


@dataclass
class KnownSettings:
    """Settings as a coordinator has sent them."""

    known: Settings = field(default_factory=lambda: Settings({"log_retention_days_db": 7}))
    received: bool = True


@dataclass
class Gateway:
    """What coordinators know of attempts that have ended, and of the settings."""

    settings: KnownSettings
    ended_attempts: dict[AttemptKey, int | None] = field(default_factory=dict)
    error: Exception | None = None

    async def ended(self, log_day: date, keys: Sequence[AttemptKey], *, off_seconds: float) -> list[Ended]:
        if self.error:
            raise self.error
        return [Ended(key, self.ended_attempts[key]) for key in keys if key in self.ended_attempts]

    async def settings_now(self) -> Settings:
        if self.error:
            raise self.error
        return self.settings.known

    def watch_settings(self, known_version: int) -> Any:
        raise NotImplementedError


@dataclass
class World:
    pool: Pool
    administrator: Pool
    url: str
    bucket: S3Bucket
    bucket_name: str
    remove: Callable[[str], None]
    today: date
    settings: KnownSettings = field(default_factory=KnownSettings)
    gateway: Gateway = field(init=False)

    def __post_init__(self) -> None:
        self.gateway = Gateway(self.settings)

    @property
    def old(self) -> date:
        """A day that is due for the archive."""
        return self.today - timedelta(days=20)

    def archiver(
        self,
        *,
        before_step: Callable[[str], None] = lambda _: None,
        store: Any = None,
        target_bytes: int = 4096,
        holder: str = "test",
        lease_seconds: float = 30.0,
        grace_seconds: float = 0.0,
    ) -> Archiver:
        return Archiver(
            steps=StepDeps(pool=self.pool, store=store or self.bucket, clock=SystemClock(), before_step=before_step),
            codec=LogLinesCodec(),
            gateway=self.gateway,
            settings=self.settings,  # type: ignore[arg-type]
            holder=holder,
            limits=ArchiveLimits(lease_seconds=lease_seconds, target_bytes=target_bytes, grace_seconds=grace_seconds),
        )

    async def work(self, **given: Any) -> list[PassEvent]:
        """One pass; what it did."""
        did: list[PassEvent] = []
        await self.archiver(**given).run_pass(did.append)
        return did

    async def store(
        self,
        run_id: int,
        token: int,
        seqs: Sequence[int],
        *,
        day: date | None = None,
        seal: int | None = None,
        stream: Callable[[int], int] = lambda seq: seq % 2 + 1,
        size: int = 10,
    ) -> None:
        """Stores lines in chunks of `size`, as an ingest would; on an old day, unless told otherwise."""
        day = day or self.old
        async with autocommit(self.pool) as t:
            await partitions.ensure(t, first=day, last=day)
        new = []
        for number in {stream(seq) for seq in seqs}:
            mine = [seq for seq in seqs if stream(seq) == number]
            new += [_chunk(run_id, token, mine[at : at + size], number, day) for at in range(0, len(mine), size)]
        note = TokenNote(log_day=day, run_id=run_id, token=token, incarnation=INCARNATION, last_seq=seal)
        async with tx(self.pool) as t:
            await log_attempts.note(t, [note])
            await chunks.append(t, new)

    async def read(self, run_id: int, *, store: Any = None, **given: Any) -> list[tuple[int, int, bytes]]:
        """(token, seq, text) of every line, in the order in which a reader gets them."""
        request = logs_pb2.ReadLogRequest(run_id=run_id, **given)
        return [
            (answer.token, line.seq, bytes(line.text))
            async for answer in self.reader(store=store).Read(request, None)
            for line in answer.lines
        ]

    def source(self, *, store: Any = None) -> CombinedSource:
        """The database and the archive, as readers see them."""
        archived = ArchiveSource(pool=self.pool, store=store or self.bucket)
        return CombinedSource(DatabaseSource(pool=self.pool), archived)

    def reader(self, *, store: Any = None, source: Any = None) -> LogReader:
        """A log-archiver as its readers see it."""
        deps = ReaderDeps(source=source or self.source(store=store), codec=LogLinesCodec(), clock=SystemClock())
        return LogReader(reading=LogReading(deps=deps, followers=Followers()))

    @staticmethod
    def wanted(run_id: int, token: int, seqs: Sequence[int]) -> list[tuple[int, int, bytes]]:
        """What `read` must give."""
        return [(token, seq, text(run_id, token, seq)) for seq in seqs]

    async def sql(self, statement: str, **params: Any) -> list[dict[str, Any]]:
        async with autocommit(self.administrator) as t:
            return await t.fetch_all(statement, params)

    async def execute(self, statement: str, **params: Any) -> None:
        async with autocommit(self.administrator) as t:
            await t.execute(statement, params)

    async def has_day(self, day: date | None = None) -> bool:
        rows = await self.sql(
            "SELECT to_regclass(%(name)s::text) AS found", name=f"logs.chunks_{day or self.old:%Y%m%d}"
        )
        return rows[0]["found"] is not None


@pytest.fixture
def bucket_at(s3: Any) -> Callable[..., S3Bucket]:
    """Makes a client of the bucket of this name, by way of another address if one is given."""

    def make(name: str, *, endpoint_url: str = "", data_seconds: float = 15.0) -> S3Bucket:
        return S3Bucket(
            endpoint_url=endpoint_url or s3.s3_endpoint_url,
            bucket=name,
            access_key=s3.s3_access_key,
            secret_key=s3.s3_secret_key,
            region=s3.s3_region,
            data_seconds=data_seconds,
        )

    return make


@pytest.fixture
async def world(
    pg_url: str, log_archiver_url: str, s3: Any, bucket_at: Callable[..., S3Bucket]
) -> AsyncIterator[World]:
    day = today()
    pool = await kept_pool(log_archiver_url, max_size=4)
    name = f"test-{token_hex(8)}"
    bucket = bucket_at(name)
    keys = {"aws_access_key_id": s3.s3_access_key, "aws_secret_access_key": s3.s3_secret_key}
    client = boto3.client("s3", endpoint_url=s3.s3_endpoint_url, region_name=s3.s3_region, **keys)
    client.create_bucket(Bucket=name)

    def remove(key: str) -> None:
        client.delete_object(Bucket=name, Key=key)

    administrator = await kept_pool(pg_url, max_size=4)
    parts = {"url": pg_url, "bucket": bucket, "bucket_name": name, "remove": remove, "today": day}
    yield World(pool=pool, administrator=administrator, **parts)
    await pool.close()
    await administrator.close()
    # Each bucket has volumes of its own, of which SeaweedFS has as many as gigabytes are free.
    client.delete_bucket(Bucket=name)


def _chunk(run_id: int, token: int, seqs: Sequence[int], stream: int, day: date) -> NewChunk:
    lines = [
        logs_pb2.LogLine(seq=seq, at_unix_nanos=NANOS + seq, stream=stream, text=text(run_id, token, seq))  # type: ignore[arg-type]
        for seq in seqs
    ]
    return NewChunk(
        log_day=day,
        run_id=run_id,
        token=token,
        stream=stream,
        seq_from=seqs[0],
        seq_to=seqs[-1],
        line_count=len(seqs),
        raw_bytes=sum(len(line.text) + 1 for line in lines),
        first_at=AT,
        last_at=AT,
        data=zstandard.compress(logs_pb2.LogLines(lines=lines).SerializeToString()),
    )
