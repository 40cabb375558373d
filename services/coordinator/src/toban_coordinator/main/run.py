"""The life of one coordinator process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.main.grpc_server import build
from toban_coordinator.main.health import Health, waits_for_postgresql
from toban_coordinator.main.wiring import Connections, Parts, connect
from toban_coordinator.store import coordinators
from toban_domain.errors import TobanError
from toban_fencing.redis_client import RedisGone
from toban_observability.admin_port import AdminPort
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock, SystemClock
from toban_runtime.ids import IdSource
from toban_runtime.lifecycle import Stop, write_ready_file
from toban_store.notifications import Listener
from toban_transport.tls_reload import certificate_check

GRACE_SECONDS = 2.0
T = TypeVar("T")
_log = get_logger(__name__)


async def run(config: CoordinatorConfig, stop: Stop, release: str) -> None:
    """Connect, serve, stand for leadership; after `stop`: finish the tick, resign, record the end, close."""
    clock = SystemClock()
    connections = await connect(config, clock)
    admin = _Admin(config)
    try:
        # Before PostgreSQL is asked: nobody may restart a coordinator because PostgreSQL is away.
        await admin.start()
        worker_id = await _patiently(lambda: coordinators.draw_worker_id(connections.pool), clock, stop)
        if worker_id is not None:
            ids = IdSource()
            parts = Parts(
                config=config, connections=connections, clock=clock, ids=ids, worker_id=worker_id, release=release
            )
            await _serve(config, connections, parts, admin, stop)
    finally:
        await admin.stop()
        await connections.close()


class _Admin:
    """The admin port, which says that PostgreSQL is waited for until `document` is the health of the whole."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self.document = waits_for_postgresql
        self.port = 0
        self._served = AdminPort(config.admin_host, config.admin_port, lambda: self.document())

    async def start(self) -> None:
        """Raises OSError when the address is taken."""
        self.port = await self._served.start()

    async def stop(self) -> None:
        """May be called when it was never started."""
        await self._served.stop()


async def _serve(config: CoordinatorConfig, connections: Connections, parts: Parts, admin: _Admin, stop: Stop) -> None:
    clock = SystemClock()
    health = Health(
        leadership=parts.leadership,
        server_time=parts.server_time,
        redis=connections.redis,
        settings=parts.settings,
        errors=parts.errors,
        certificate=lambda: certificate_check(connections.tls, clock.wall()),
    )
    server = build(config, connections, parts, health, clock)
    grpc_port = await server.start(config.grpc_host, config.grpc_port)
    admin.document = health.document
    parts.leadership.set_address(f"{config.advertised}:{grpc_port}")
    await _patiently(lambda: _introduce(parts), clock, stop)
    listener = Listener(config.database_url, application_name="toban/listen", clock=clock)
    tasks = [
        _task("leadership", parts.leadership.run(), stop),
        _task("watcher", parts.watcher.run(), stop),
        _task("listener", _listen(listener, parts), stop),
        *(_task(loop.name, loop.run(stop), stop) for loop in parts.standing_loops),
    ]
    await server.set_serving(True)
    write_ready_file(config.ready_file, grpc_port=grpc_port, admin_port=admin.port)
    await stop.wait()
    _log.info("stops", reason=stop.reason)
    await server.set_serving(False)
    await parts.leadership.leave()
    parts.settings_streams.stop()
    await server.stop(GRACE_SECONDS)
    await _say_goodbye(parts)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _patiently(make: Callable[[], Awaitable[T]], clock: Clock, stop: Stop) -> T | None:
    """The result of `make()`, as soon as PostgreSQL gives one; None when told to stop before."""
    backoff, attempt = Backoff(base=0.2, cap=5.0), 0
    while not stop.is_set():
        try:
            return await make()
        except TobanError as error:
            attempt += 1
            wait = backoff.delay(attempt)
            _log.warning("waits for PostgreSQL", attempt=attempt, error=error.message, next_try_seconds=round(wait, 2))
            await clock.sleep(wait)
    return None


async def _introduce(parts: Parts) -> None:
    me = parts.leadership.me
    await parts.presence.introduce()
    try:
        await parts.members.raise_sequence(me.worker_id)
    except RedisGone as error:
        _log.warning("the worker id is not mirrored", error=error.message)


async def _say_goodbye(parts: Parts) -> None:
    try:
        await parts.presence.leave()
        await parts.members.remove(parts.leadership.me.worker_id)
    except TobanError as error:
        _log.warning("the end is not recorded", error=error.message)


async def _listen(listener: Listener, parts: Parts) -> None:
    async for name in listener:
        parts.wake(name)


def _task(name: str, work: Coroutine[Any, Any, None], stop: Stop) -> asyncio.Task[None]:
    """A task whose end by an error ends the process: half a coordinator is worse than none."""
    task = asyncio.create_task(work, name=name)

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of this process broke down", part=name, exc_info=error)
            stop.request(f"{name} broke down")

    task.add_done_callback(ended)
    return task
