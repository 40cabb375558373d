"""Builds the log-archiver by hand, serves until asked to stop, and puts everything away in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from toban_domain.version import VERSION
from toban_log_archiver.adapters.coordinator_client import CoordinatorClient
from toban_log_archiver.adapters.object_store import S3Bucket
from toban_log_archiver.config import LogArchiverConfig
from toban_log_archiver.decide.partition_window import DAYS_BACK
from toban_log_archiver.loops import archive_watch, health_probe, partitions, pass_report
from toban_log_archiver.loops.archive import Archiver, ArchiverDeps
from toban_log_archiver.loops.archive_steps import StepDeps
from toban_log_archiver.loops.archive_watch import ArchiveWatch
from toban_log_archiver.server import archive as archive_server
from toban_log_archiver.server import ingest, log_reader_service
from toban_log_archiver.server.append_session import AppendSession
from toban_log_archiver.server.archive_source import ArchivedChunks
from toban_log_archiver.server.chunk_codec import count_marks
from toban_log_archiver.server.combined_source import JoinedChunks
from toban_log_archiver.server.database_source import DatabaseChunks
from toban_log_archiver.server.followers import CHANNEL, Followers
from toban_log_archiver.server.group_commit import GroupWriter
from toban_log_archiver.server.ingest_budget import Budget, held_in
from toban_log_archiver.server.partition_cache import Days
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


def run() -> int:
    """The process: its exit code."""
    config = load(LogArchiverConfig)
    setup_logging(SERVICE, config.log_format, config.log_level)
    build_info(SERVICE, VERSION)
    tracing.setup(SERVICE, VERSION)
    return run_service(partial(serve, config, clock=SystemClock()))


async def serve(config: LogArchiverConfig, stop: Stop, *, clock: Clock) -> None:
    """Serves until `stop`. Raises TobanError CONFIG_INVALID for bad certificates or a taken port; waits out an absent PostgreSQL."""
    tls = TlsFiles(config.tls_dir)
    pool = await open_pool(config.database_url, application_name=NAME, min_size=2, max_size=POOL_SIZE)
    followers = Followers()
    days = Days(pool=pool)
    writer = GroupWriter(pool=pool, clock=clock, on_day_gone=days.forget)
    bucket = _bucket(config)
    channels = ChannelPool(tls=tls, trust_domain=config.trust_domain)
    archiving = _archiving(config, pool, bucket, channels, clock)
    health = health_probe.Probe(
        pool=pool,
        bucket=bucket,
        clock=clock,
        certificate=lambda: certificate_check(tls, clock.wall()),
        archive=archiving.watch.check,
    )
    shared = config.tls_shared_identity
    grpc = build_server(tls=tls, trust_domain=config.trust_domain, clock=clock, shared_identity=shared)
    verifier = TicketVerifier(tls, config.trust_domain, leeway=timedelta(days=DAYS_BACK), shared_identity=shared)
    watch = archiving.watch
    budget = Budget(is_full=lambda: watch.is_full, words=lambda: watch.budget_words, held=held_in(pool))
    new_session = partial(AppendSession, verifier=verifier, days=days, clock=clock, within_budget=budget.take)
    grpc.add(ingest.add_to_server, ingest.LogIngest(new_session=new_session, writer=writer))
    source = JoinedChunks(DatabaseChunks(pool=pool), ArchivedChunks(pool=pool, store=bucket))
    grpc.add(
        log_reader_service.add_to_server, log_reader_service.LogReader(source=source, followers=followers, clock=clock)
    )
    desk = archive_server.LogArchive(pool=pool, settings=archiving.settings, store=bucket, archiver=archiving.archiver)
    grpc.add(archive_server.add_to_server, desk)
    admin = AdminPort(config.admin_host, config.admin_port, health.document)
    work = [
        writer.run(),
        followers.listen(
            Listener(config.database_url, application_name=f"{NAME}-listen", clock=clock, channel=CHANNEL)
        ),
        archiving.settings.run(),
        *_loops(pool, health, clock, stop),
        *_archive_loops(archiving, clock, stop),
    ]
    try:
        async with _running(work, stop):
            grpc_port = await grpc.start(config.grpc_host, config.grpc_port)
            admin_port = await admin.start()
            write_ready_file(config.ready_file, grpc_port=grpc_port, admin_port=admin_port)
            _log.info("log-archiver serves", grpc_port=grpc_port, admin_port=admin_port)
            await stop.wait()
            _log.info("log-archiver stops", reason=stop.reason)
            followers.stop()
            await grpc.stop(GRACE_SECONDS)
    finally:
        await grpc.stop(0)
        await admin.stop()
        await channels.close()
        await pool.close()


def _loops(pool: Pool, health: health_probe.Probe, clock: Clock, stop: Stop) -> list[Coroutine[Any, Any, None]]:
    ahead = partitions.PartitionsAhead(pool=pool)
    return [
        Loop("partitions", ahead.run_once, partitions.TICK_SECONDS, clock).run(stop),
        Loop("probe", health.run_once, health_probe.TICK_SECONDS, clock).run(stop),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Archiving:
    """The parts of the archive; without an object store nothing is archived."""

    settings: SettingsWatch
    archiver: Archiver | None
    watch: ArchiveWatch


def _archiving(
    config: LogArchiverConfig, pool: Pool, bucket: S3Bucket | None, channels: ChannelPool, clock: Clock
) -> _Archiving:
    gateway = CoordinatorClient(channels=channels, addresses=config.coordinators, clock=clock)
    settings = SettingsWatch(source=gateway, clock=clock)
    archiver = None
    if bucket is not None:
        archiver = Archiver(
            deps=ArchiverDeps(
                steps=StepDeps(pool=pool, store=bucket, clock=clock),
                gateway=gateway,
                settings=settings,
                holder=f"{config.node_id} (process {os.getpid()})",
                count_marks=count_marks,
            )
        )
    watch = ArchiveWatch(pool=pool, settings=settings, archiver=archiver)
    return _Archiving(settings=settings, archiver=archiver, watch=watch)


def _archive_loops(archiving: _Archiving, clock: Clock, stop: Stop) -> list[Coroutine[Any, Any, None]]:
    watching = Loop("archive_watch", archiving.watch.run_once, archive_watch.TICK_SECONDS, clock)
    if archiving.archiver is None:
        archiving.settings.on_change = watching.wake
        return [watching.run(stop)]
    moving = Loop("archive", archiving.archiver.run_once, pass_report.TICK_SECONDS, clock)

    def wake() -> None:
        watching.wake()
        moving.wake()

    archiving.settings.on_change = wake
    return [watching.run(stop), moving.run(stop)]


@contextlib.asynccontextmanager
async def _running(work: Sequence[Coroutine[Any, Any, None]], stop: Stop) -> AsyncIterator[None]:
    """Runs `work` beside the block and ends it after the block. Work that fails asks for the stop, and its error is raised then."""
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


def _bucket(config: LogArchiverConfig) -> S3Bucket | None:
    if not config.s3_bucket:
        return None
    return S3Bucket(
        endpoint_url=config.s3_endpoint_url,
        bucket=config.s3_bucket,
        access_key=config.s3_access_key,
        secret_key=config.s3_secret_key,
        region=config.s3_region,
        addressing_style=config.s3_addressing_style,
    )
