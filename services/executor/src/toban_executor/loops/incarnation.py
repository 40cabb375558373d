"""Runs one incarnation: serve, recover, register, keep the lease, drain, stop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toban_domain.errors import TobanError
from toban_executor.adapters.control_file import published
from toban_executor.app.attempt_manager import AttemptManager
from toban_executor.app.log_collector import LogCollector
from toban_executor.app.recovery import COPIED, Recovery
from toban_executor.app.registration import Registration
from toban_executor.app.shutdown import Shutdown
from toban_executor.config import ExecutorConfig
from toban_executor.loops.heartbeat import Heartbeat
from toban_executor.ports.guards import GuardConnection, Prepared
from toban_executor.ports.journal import Journal
from toban_observability.admin_port import AdminPort
from toban_observability.error_rate import ErrorRate
from toban_observability.health import Check, report
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_runtime.lifecycle import Stop, write_ready_file
from toban_runtime.loop import Loop
from toban_runtime.settings_watch import SettingsWatch
from toban_transport.channel import ChannelPool
from toban_transport.server import GrpcServer

SERVER_GRACE_SECONDS = 0.5
"""How long calls in progress may take when the server stops."""
LOOP_GRACE_SECONDS = 1.0
"""How long turns of loops in progress may take at the end."""
MANY_REPORTS = 1000
"""From this number of unanswered reports on, health is a warning."""
GUARD_SECONDS = 10.0
"""How long the guards may take to end in order; half a second when another incarnation follows, which ends them itself."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Everything of an incarnation that is open to the outside."""

    server: GrpcServer
    admin: AdminPort
    channels: ChannelPool
    journal: Journal
    guards: GuardConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCases:
    """The use cases of an incarnation."""

    attempts: AttemptManager
    collector: LogCollector
    recovery: Recovery
    registration: Registration
    shutdown: Shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """`always` run from the start; `leased`, heartbeats among them, and `settings` from the registration on.

    `wake_heartbeat` sends a heartbeat at once.
    """

    always: Sequence[Loop]
    leased: Sequence[Loop]
    settings: SettingsWatch
    heartbeat: Heartbeat
    wake_heartbeat: Callable[[], None]


class Incarnation:
    """Runs once."""

    def __init__(
        self,
        *,
        config: ExecutorConfig,
        prepared: Prepared,
        connections: Connections,
        use_cases: UseCases,
        loops: Loops,
    ) -> None:
        self._config = config
        self._prepared = prepared
        self._connections = connections
        self._use_cases = use_cases
        self._loops = loops
        self._lease = use_cases.attempts.lease
        # Set when the loops are to end.
        self._halt = asyncio.Event()
        # Set when another process requests a drain ahead of the stop.
        self._drain = asyncio.Event()

    async def run(self, stop: Stop) -> bool:
        """Serve until stopped (False), or until the incarnation is over and the process should register again (True)."""
        config, admin, guards = self._config, self._connections.admin, self._connections.guards
        grpc_port = await self._connections.server.start(config.grpc_host, config.grpc_port)
        admin_port = await admin.start()
        identity = self._use_cases.recovery.run(grpc_port)
        guards.listen(self._use_cases.attempts)
        tasks = self._run_loops(self._loops.always)
        write_ready_file(config.ready_file, grpc_port=grpc_port, admin_port=admin_port)
        follows: asyncio.Task[None] | None = None
        if await self._use_cases.registration.run(identity, stop):
            tasks += self._run_loops(self._loops.leased)
            follows = asyncio.create_task(self._loops.settings.run())
        with published(self._prepared.state_dir, admin_port=admin_port, on_drain=self._drain.set):
            again = await self._serve(stop)
        if follows is not None:
            follows.cancel()
        await self._connections.server.stop(SERVER_GRACE_SECONDS)
        self._halt.set()
        await stop_all(tasks, LOOP_GRACE_SECONDS)
        guards.stop_reading()
        await self._use_cases.collector.finish()
        ended = await guards.close(timeout=0.5 if again else GUARD_SECONDS)
        if self._lease.superseded:
            # Another copy has the lease, and goes on as this instance.
            try:
                await asyncio.wait_for(self._connections.journal.set_meta("machine", COPIED), LOOP_GRACE_SECONDS)
            except (TobanError, TimeoutError) as error:
                _log.error(
                    "cannot mark the state directory as a copy, so the next start would register as the same instance",
                    remedy="stop this executor and remove its state directory",
                    error=str(error),
                )
        if ended and not again:
            await self._report_stopped()
        _log.info("incarnation ended", again=again, guards_ended=ended, why=self._lease.over or stop.reason)
        await self._connections.channels.close()
        await admin.stop()
        self._connections.journal.close()
        return again

    def _run_loops(self, loops: Sequence[Loop]) -> list["asyncio.Task[None]"]:
        return [asyncio.create_task(loop.run(self._halt)) for loop in loops]

    async def _serve(self, stop: Stop) -> bool:
        """Until the end, then shut down; True when the process should register again."""
        shutdown = self._use_cases.shutdown

        def leaving() -> bool:
            return stop.is_set() or self._drain.is_set()

        await first_of(stop, self._drain, self._lease.ended)
        if leaving():
            self._loops.wake_heartbeat()
            # Without a registration no runs are sent here: there is nothing to wait for.
            registered = self._lease.registered is not None
            heartbeat = self._loops.heartbeat
            await shutdown.drain(
                self._shutdown_seconds() if registered else 0.0, acknowledged=lambda: heartbeat.drain_acknowledged
            )
            await first_of(stop, self._lease.ended)
            if not self._lease.over:
                await shutdown.flush(deliver=registered)
                return False
        _log.warning("incarnation is over", why=self._lease.over)
        await shutdown.abandon()
        await shutdown.flush(deliver=False)
        return not leaving()

    def _shutdown_seconds(self) -> float:
        own = self._config.shutdown_timeout_seconds
        return self._loops.settings.known["shutdown_timeout_seconds"] if own is None else own

    async def _report_stopped(self) -> None:
        cases = self._use_cases
        if self._lease.over or self._lease.registered is None or self._lease.superseded:
            return
        if cases.attempts.reports_pending or cases.collector.pending:
            # Its lease ends by itself; the next incarnation reports the outcomes that are still pending.
            return
        try:
            await self._loops.heartbeat.send_stopped()
        except TobanError as error:
            _log.warning("could not report the shutdown to any coordinator", error=error.message)


class Health:
    """The executor's /healthz document. `certificate` checks the certificate of this executor."""

    def __init__(self, *, attempts: AttemptManager, certificate: Callable[[], Check], clock: Clock) -> None:
        self._attempts = attempts
        self._certificate = certificate
        self._clock = clock
        self._errors = ErrorRate()

    async def sample_errors(self) -> None:
        """One turn of the loop that measures the rate of errors."""
        self._errors.sample(self._clock.monotonic())

    def document(self) -> dict[str, Any]:
        """Each check and the worst status."""
        book, lease, pending = self._attempts.book, self._attempts.lease, self._attempts.reports_pending
        return report(
            {
                "lease": Check("ok" if lease.valid else "error", lease.row_state),
                "slots": Check("ok", f"{book.slots - book.free_slots}/{book.slots}"),
                "certificate": self._certificate(),
                "draining": Check("ok" if book.accepting else "warning", not book.accepting),
                "processes": Check(
                    "error" if book.out_of_reach else "ok", "some refuse signals" if book.out_of_reach else "reachable"
                ),
                "guards": Check(
                    "error" if book.unsupervised else "ok",
                    "the guard supervisor has died" if book.unsupervised else "supervised",
                ),
                "errors_5_minutes": self._errors.check(),
                "quarantine": Check("warning" if (refused := len(self._attempts.quarantined)) else "ok", refused),
                "reports": Check("ok" if pending < MANY_REPORTS else "warning", pending),
            }
        )


async def first_of(*events: asyncio.Event) -> None:
    """Returns when one of them is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def stop_all(tasks: list["asyncio.Task[None]"], seconds: float) -> None:
    """Let loops finish their turns for `seconds`, then cancel them."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
