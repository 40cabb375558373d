"""The life of one coordinator process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.main.grpc_server import build
from toban_coordinator.main.health import Health, HealthDocument
from toban_coordinator.main.wiring import Coordinator, Factories
from toban_coordinator.store.cluster import coordinators
from toban_domain.errors import TobanError
from toban_observability.admin_port import AdminPort
from toban_observability.logs import get_logger
from toban_runtime.lifecycle import Stop, write_ready_file
from toban_store.notifications import Listener
from toban_transport.tls_reload import certificate_check

GRACE_SECONDS = 2.0
LAST_WRITE_SECONDS = 2.0
T = TypeVar("T")
_log = get_logger(__name__)


async def run(config: CoordinatorConfig, stop: Stop, release: str, factories: Factories | None = None) -> None:
    """Connect, serve, take part in the election; after `stop`: finish the tick, resign, record the end, close."""
    made = factories or Factories()
    connections = await made.connect(config, made.clock)
    document = HealthDocument()
    admin = AdminPort(config.admin_host, config.admin_port, document, token_file=config.admin_token_file)
    try:
        # Before PostgreSQL is asked: an orchestrator must not restart a coordinator because PostgreSQL is away.
        admin_port = await admin.start()
        worker_id = await _retry(lambda: coordinators.draw_worker_id(connections.pool), made, stop)
        if worker_id is not None:
            parts = Coordinator(
                config=config, connections=connections, factories=made, worker_id=worker_id, release=release
            )
            health = _health(parts)
            await _serve(
                config, parts, health, made, stop, on_bound=lambda: document.begin(health), admin_port=admin_port
            )
    finally:
        await admin.stop()
        await connections.close()


def _health(parts: Coordinator) -> Health:
    return Health(
        leadership=parts.leadership,
        server_time=parts.server_time,
        redis=parts.connections.redis,
        settings=parts.settings,
        errors=parts.errors,
        certificate=lambda: certificate_check(parts.connections.tls, parts.clock.wall()),
    )


async def _serve(
    config: CoordinatorConfig,
    parts: Coordinator,
    health: Health,
    factories: Factories,
    stop: Stop,
    *,
    on_bound: Callable[[], None],
    admin_port: int,
) -> None:
    server = build(config, parts, health)
    grpc_port = await server.start(config.grpc_host, config.grpc_port)
    on_bound()
    parts.leadership.set_address(f"{config.advertised}:{grpc_port}")
    await _retry(parts.presence.introduce, factories, stop)
    listener = Listener(config.database_url, application_name="toban/listen", clock=parts.clock)
    tasks = [
        _task("leadership", parts.leadership.run(), stop),
        _task("watcher", parts.watcher.run(), stop),
        _task("listener", _listen(listener, parts), stop),
        *(_task(loop.name, loop.run(stop), stop) for loop in parts.standing_loops),
    ]
    await server.set_serving(True)
    write_ready_file(config.ready_file, grpc_port=grpc_port, admin_port=admin_port)
    await stop.wait()
    _log.info("shutting down", reason=stop.reason)
    await server.set_serving(False)
    await parts.leadership.leave()
    parts.settings_streams.stop()
    await parts.changes.stop()
    await server.stop(GRACE_SECONDS)
    await _deregister(parts)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _retry(make: Callable[[], Awaitable[T]], factories: Factories, stop: Stop) -> T | None:
    """The result of `make()`, as soon as PostgreSQL gives one; None when told to stop before."""
    backoff, attempt = factories.backoff(), 0
    while not stop.is_set():
        try:
            return await make()
        except TobanError as error:
            attempt += 1
            wait = backoff.delay(attempt)
            _log.warning("waits for PostgreSQL", attempt=attempt, error=error.message, next_try_seconds=round(wait, 2))
            await factories.clock.sleep(wait)
    return None


async def _deregister(parts: Coordinator) -> None:
    try:
        async with asyncio.timeout(LAST_WRITE_SECONDS):
            await parts.presence.leave()
            await parts.members.remove(parts.leadership.me.worker_id)
    except TimeoutError:
        _log.warning("could not record the end of this process", error=f"no answer within {LAST_WRITE_SECONDS:g} s")
    except TobanError as error:
        _log.warning("could not record the end of this process", error=error.message)


async def _listen(listener: Listener, parts: Coordinator) -> None:
    async for name in listener:
        parts.wakes.wake(name)


def _task(name: str, work: Coroutine[Any, Any, None], stop: Stop) -> asyncio.Task[None]:
    """A task whose end by an error ends the process: half a coordinator is worse than none."""
    task = asyncio.create_task(work, name=name)

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of this process failed: the process ends", task=name, exc_info=error)
            stop.request(f"{name} failed")

    task.add_done_callback(ended)
    return task
