"""Wires the log-archiver by constructors, serves until asked to stop, and closes everything in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from toban_domain.version import VERSION
from toban_log_archiver.adapters.chunk_codec import LogLinesCodec
from toban_log_archiver.adapters.coordinator_client import CoordinatorClient
from toban_log_archiver.adapters.object_store import S3Bucket
from toban_log_archiver.app.append_session import AppendSession
from toban_log_archiver.app.archive_pass import ArchiveLimits, Archiver
from toban_log_archiver.app.archive_source import ArchiveSource
from toban_log_archiver.app.archive_steps import StepDeps
from toban_log_archiver.app.chunk_writer import ChunkWriter
from toban_log_archiver.app.combined_source import CombinedSource
from toban_log_archiver.app.database_source import DatabaseSource
from toban_log_archiver.app.followers import CHANNEL, Followers
from toban_log_archiver.app.ingest_budget import IngestBudget, stored_places
from toban_log_archiver.app.line_reader import ReaderDeps
from toban_log_archiver.app.log_reading import LogReading
from toban_log_archiver.app.partition_cache import PartitionCache
from toban_log_archiver.app.pass_report import PASS_SECONDS
from toban_log_archiver.config import LogArchiverConfig
from toban_log_archiver.decide.partition_window import DAYS_BACK
from toban_log_archiver.loops import archive_watch, health_probe, partitions
from toban_log_archiver.loops.archive import ArchiveLoop
from toban_log_archiver.server import archive, ingest, log_reader_service
from toban_log_archiver.server.read_ticket_check import ReadTicketCheck
from toban_observability import tracing
from toban_observability.admin_port import AdminPort
from toban_observability.logs import get_logger, setup_logging
from toban_observability.metrics import build_info
from toban_runtime.clock import Clock, SystemClock
from toban_runtime.config import load
from toban_runtime.lifecycle import Stop, run_service, write_ready_file
from toban_runtime.loop import Loop
from toban_runtime.settings_watch import SettingsWatch
from toban_store.notifications import Listener
from toban_store.pool import Pool, open_pool
from toban_transport.channel import ChannelPool
from toban_transport.log_ticket import TicketVerifier
from toban_transport.read_ticket import ReadTicketVerifier
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import certificate_check

SERVICE = "log-archiver"
NAME = f"toban-{SERVICE}"
# Streams under way get this long to end, seconds.
GRACE_SECONDS = 5.0
# Connections to PostgreSQL at most; one more listens.
POOL_SIZE = 12

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Factories:
    """Constructors that a test may replace."""

    clock: Callable[[], Clock] = SystemClock
    channels: Callable[..., ChannelPool] = ChannelPool
    bucket: Callable[..., S3Bucket] = S3Bucket
    steps: Callable[..., StepDeps] = StepDeps
    limits: Callable[[], ArchiveLimits] = ArchiveLimits


def run(factories: Factories = Factories()) -> int:
    """The process: its exit code."""
    config = load(LogArchiverConfig)
    setup_logging(SERVICE, config.log_format, config.log_level)
    build_info(SERVICE, VERSION)
    tracing.setup(SERVICE, VERSION)
    return run_service(partial(serve, config, factories=factories))


async def serve(config: LogArchiverConfig, stop: Stop, *, factories: Factories = Factories()) -> None:
    """Serves until `stop`. Raises TobanError CONFIG_INVALID for bad certificates or a taken port; waits out an absent PostgreSQL."""
    tls = TlsFiles(config.tls_dir)
    pool = await open_pool(config.database_url, application_name=NAME, min_size=2, max_size=POOL_SIZE)
    channels = factories.channels(tls=tls, trust_domain=config.trust_domain)
    parts = _Parts(config=config, factories=factories, pool=pool, tls=tls, channels=channels)
    grpc = build_server(
        tls=tls,
        trust_domain=config.trust_domain,
        clock=parts.clock,
        shared_identity=config.tls_shared_identity,
        people=ReadTicketCheck(verifier=_read_verifier(config, tls), clock=parts.clock),
    )
    grpc.add(ingest.add_to_server, parts.ingest)
    grpc.add(log_reader_service.add_to_server, parts.reader)
    grpc.add(archive.add_to_server, parts.archive)
    admin = AdminPort(config.admin_host, config.admin_port, parts.health.document, token_file=config.admin_token_file)
    try:
        async with _running([*parts.background(), *(loop.run(stop) for loop in parts.loops)], stop):
            grpc_port = await grpc.start(config.grpc_host, config.grpc_port)
            admin_port = await admin.start()
            write_ready_file(config.ready_file, grpc_port=grpc_port, admin_port=admin_port)
            _log.info("log-archiver serves", grpc_port=grpc_port, admin_port=admin_port)
            await stop.wait()
            _log.info("log-archiver stops", reason=stop.reason)
            parts.followers.stop()
            await grpc.stop(GRACE_SECONDS)
    finally:
        await grpc.stop(0)
        await parts.writer.close()
        await admin.stop()
        await channels.close()
        await pool.close()


class _Parts:
    """Every object of the service, made in the order in which they need each other."""

    def __init__(
        self, *, config: LogArchiverConfig, factories: Factories, pool: Pool, tls: TlsFiles, channels: ChannelPool
    ) -> None:
        self._listen = partial(Listener, config.database_url, application_name=f"{NAME}-listen", channel=CHANNEL)
        self.clock = clock = factories.clock()
        codec = LogLinesCodec()
        bucket = _bucket(config, factories)
        gateway = CoordinatorClient(channels=channels, addresses=config.coordinators, clock=clock)
        self._settings = settings = SettingsWatch(source=gateway, clock=clock, on_version=lambda _version: self._wake())
        new_archiver = partial(
            Archiver,
            codec=codec,
            gateway=gateway,
            settings=settings,
            holder=f"{config.node_id} (process {os.getpid()})",
            limits=factories.limits(),
        )
        # Without an object store nothing is archived.
        steps = partial(factories.steps, pool=pool, clock=clock)
        archiver = None if bucket is None else new_archiver(steps=steps(store=bucket))
        watch = archive_watch.ArchiveWatch(pool=pool, settings=settings, archiver=archiver)
        self.health = health_probe.HealthProbe(
            pool=pool,
            bucket=bucket,
            clock=clock,
            certificate=lambda: certificate_check(tls, clock.wall()),
            archive=watch.check,
        )
        budget = IngestBudget(
            is_full=lambda: watch.is_full,
            budget_text=lambda: watch.budget_text,
            stored=stored_places(pool),
            codec=codec,
        )
        days = PartitionCache(pool=pool)
        self.writer = ChunkWriter(pool=pool, clock=clock, on_missing_partition=days.forget)
        self.ingest = ingest.LogIngest(
            new_session=partial(AppendSession, codec=codec, partitions=days, within_budget=budget.admit),
            writer=self.writer,
            verifier=_verifier(config, tls),
            clock=clock,
        )
        self.followers = Followers()
        source = CombinedSource(DatabaseSource(pool=pool), ArchiveSource(pool=pool, store=bucket))
        reading = LogReading(deps=ReaderDeps(source=source, codec=codec, clock=clock), followers=self.followers)
        self.reader = log_reader_service.LogReader(reading=reading)
        self.archive = archive.LogArchive(
            pool=pool, settings=settings, store=bucket, archiver=archiver, wake=self._wake
        )
        self._archive_loops = [Loop("archive_watch", watch.run_once, archive_watch.TICK_SECONDS, clock)]
        if archiver is not None:
            passes = ArchiveLoop(archiver=archiver, settings=settings)
            self._archive_loops.append(Loop("archive", passes.run_once, PASS_SECONDS, clock))
        ahead = partitions.PartitionsAhead(pool=pool)
        self.loops = [
            Loop("partitions", ahead.run_once, partitions.TICK_SECONDS, clock),
            Loop("probe", self.health.run_once, health_probe.TICK_SECONDS, clock),
            *self._archive_loops,
        ]

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """Coroutines that run until they are cancelled, in addition to the loops."""
        return [self.followers.listen(self._listen(clock=self.clock)), self._settings.run()]

    def _wake(self) -> None:
        """The loops of the archive take their next turn now."""
        for loop in self._archive_loops:
            loop.wake()


def _verifier(config: LogArchiverConfig, tls: TlsFiles) -> TicketVerifier:
    leeway = timedelta(days=DAYS_BACK)
    return TicketVerifier(tls, config.trust_domain, leeway=leeway, shared_identity=config.tls_shared_identity)


def _read_verifier(config: LogArchiverConfig, tls: TlsFiles) -> ReadTicketVerifier:
    return ReadTicketVerifier(tls, config.trust_domain, shared_identity=config.tls_shared_identity)


def _bucket(config: LogArchiverConfig, factories: Factories) -> S3Bucket | None:
    if not config.s3_bucket:
        return None
    return factories.bucket(
        endpoint_url=config.s3_endpoint_url,
        bucket=config.s3_bucket,
        access_key=config.s3_access_key,
        secret_key=config.s3_secret_key,
        region=config.s3_region,
        addressing_style=config.s3_addressing_style,
    )


@contextlib.asynccontextmanager
async def _running(work: Sequence[Coroutine[Any, Any, None]], stop: Stop) -> AsyncIterator[None]:
    """Runs `work` beside the block and ends it after the block. Work that fails requests the stop, and its error is raised then."""
    tasks = [asyncio.ensure_future(one) for one in work]

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            stop.request(f"{type(task.exception()).__name__} in the background")

    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
