"""Wires the executor: journal, adapters, loops, server. One call of `main` is one incarnation."""

import asyncio
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toban_domain.errors import TobanError
from toban_domain.version import VERSION
from toban_executor.adapters.control_file import published
from toban_executor.adapters.coordinator_client import CoordinatorClient, Identity
from toban_executor.adapters.crash_recovery import recover_messages
from toban_executor.adapters.guard_client import GuardClient
from toban_executor.adapters.host_info import fingerprint, vitals
from toban_executor.adapters.journal import Journal
from toban_executor.adapters.log_client import ArchiverClient, Packer
from toban_executor.adapters.program_lookup import ProgramFinder, load_allow_list
from toban_executor.adapters.state_dir import save_slots
from toban_executor.config import ExecutorConfig
from toban_executor.decide.heartbeat_timing import heartbeat_seconds
from toban_executor.decide.instance import Instance, Kept, instance_of
from toban_executor.decide.programs import ProgramRules
from toban_executor.guard import guard_state
from toban_executor.guard.launch import GuardSet
from toban_executor.loops.attempt_manager import Attempts, Launcher
from toban_executor.loops.heartbeat import Heartbeat, Surroundings
from toban_executor.loops.lease_watchdog import TICK_SECONDS, LeaseWatch
from toban_executor.loops.log_collector import Collector
from toban_executor.loops.log_shipper import Shipper
from toban_executor.loops.outcome_reporter import INHERITED, Reporter
from toban_executor.loops.register import join
from toban_executor.loops.shutdown import Retirement, stop_all
from toban_executor.ports import Registered
from toban_executor.server import WorkerService, add_to_server
from toban_fencing.executor_lease import HoldSide
from toban_fencing.order_book import OrderBook
from toban_observability import metrics, tracing
from toban_observability.admin_port import AdminPort
from toban_observability.error_rate import SAMPLE_SECONDS, ErrorRate
from toban_observability.health import Check, report
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_runtime.lifecycle import Stop, run_service, write_ready_file
from toban_runtime.loop import Loop
from toban_runtime.settings_watch import SettingsWatch
from toban_transport.channel import ChannelPool
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import certificate_check

_log = get_logger(__name__)
_settings_version = metrics.gauge("toban_executor_settings_version", "Version of the settings that this executor uses.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What exists before gRPC is loaded: the locked state directory, the guards, and which earlier incarnations are proven empty.

    The setting gives at most `most_slots`: more cannot be started here.
    """

    state_dir: Path
    guards: GuardSet
    settled: dict[str, bool]
    most_slots: int


class Executor:
    """One incarnation, built by hand."""

    def __init__(self, *, config: ExecutorConfig, prepared: Prepared) -> None:
        self._config = config
        self._prepared = prepared
        self._clock = SystemClock()
        self._halt = asyncio.Event()
        # Asked to take no new work ahead of its stop.
        self._drain = asyncio.Event()
        self._errors = ErrorRate()
        # Sends a heartbeat at once.
        self._tell: Callable[[], None] = lambda: None
        self._machine = fingerprint(config.machine)
        self._tls = TlsFiles(config.tls_dir)
        self._channels = ChannelPool(tls=self._tls, trust_domain=config.trust_domain)
        self._journal = Journal(prepared.state_dir / "journal.sqlite3")
        self._guards = GuardClient(guards=prepared.guards, clock=self._clock)
        incarnation = prepared.guards.incarnation
        self._gateway = CoordinatorClient(
            channels=self._channels, addresses=config.coordinators, incarnation=incarnation, clock=self._clock
        )
        self._archivers = ArchiverClient(channels=self._channels, addresses=config.log_archivers)
        self._collector = Collector(
            journal=self._journal,
            pack=Packer(),
            hold=self._guards.hold_output,
            clock=self._clock,
            max_journal_bytes=config.log_budget_mb << 20,
        )
        self._reporter = Reporter(gateway=self._gateway, journal=self._journal)
        allowed = load_allow_list(config.allow_list)
        if not allowed.listed:
            _log.warning("no allow-list: every program may be started; set SCHEDULER_ALLOW_LIST to restrict it")
        rules = ProgramRules(allowed=allowed, resolve=ProgramFinder())
        self._attempts = Attempts(
            book=OrderBook(incarnation=incarnation, slots=len(prepared.guards.slots), unfit=rules.unfit),
            guards=self._guards,
            journal=self._journal,
            reporter=self._reporter,
            collector=self._collector,
            clock=self._clock,
        )
        self._attempts.launcher = Launcher(program=rules.program, home=str(Path.home()))
        self._settings = SettingsWatch(source=self._gateway, clock=self._clock, on_version=_settings_version.set)
        self._heartbeat = Heartbeat(
            gateway=self._gateway,
            attempts=self._attempts,
            journal=self._journal,
            clock=self._clock,
            around=self._surroundings(),
        )
        self._lease = LeaseWatch(
            attempts=self._attempts, guards=self._guards, heartbeat=self._heartbeat, clock=self._clock
        )
        self._retirement = Retirement(
            attempts=self._attempts,
            reporter=self._reporter,
            collector=self._collector,
            journal=self._journal,
            clock=self._clock,
            longest_grace=math.inf if config.shutdown_grace_seconds is None else config.shutdown_grace_seconds,
        )

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            labels=self._config.labels,
            load=lambda: os.getloadavg()[0],
            vitals=lambda: vitals(state_dir=self._prepared.state_dir, tls=self._tls, wall=self._clock.wall()),
            on_archivers=self._archivers.learn,
            settings_version=lambda: self._settings.known.version,
            on_settings=self._settings.note_version,
        )

    async def run(self, stop: Stop) -> bool:
        """Serve until stopped (False) or until the incarnation is over and the process should join again (True)."""
        server = build_server(
            tls=self._tls,
            trust_domain=self._config.trust_domain,
            clock=self._clock,
            shared_identity=self._config.tls_shared_identity,
        )
        server.add(add_to_server, WorkerService(attempts=self._attempts, clock=self._clock))
        admin = AdminPort(self._config.admin_host, self._config.admin_port, self._health)
        grpc_port = await server.start(self._config.grpc_host, self._config.grpc_port)
        admin_port = await admin.start()
        identity = self._recall(grpc_port)
        self._guards.listen(self._attempts)
        tasks = [asyncio.create_task(loop.run(self._halt)) for loop in self._logs_and_reports()]
        write_ready_file(self._config.ready_file, grpc_port=grpc_port, admin_port=admin_port)
        registered = await self._join(identity, stop)
        if registered is not None:
            tasks += [asyncio.create_task(loop.run(self._halt)) for loop in self._lease_loops(registered)]
        follows = asyncio.create_task(self._settings.run()) if registered is not None else None
        with published(self._prepared.state_dir, admin_port=admin_port, on_drain=self._drain.set):
            again = await self._serve(stop)
        if follows is not None:
            follows.cancel()
        await server.stop(0.5)
        self._halt.set()
        await stop_all(tasks, 1.0)
        self._guards.stop_reading()
        await self._collector.finish()
        ended = await self._guards.close(timeout=0.5 if again else 10.0)
        if ended and not again:
            await self._farewell()
        _log.info("incarnation ended", again=again, guards_ended=ended, why=self._lease.over or stop.reason)
        await self._channels.close()
        await admin.stop()
        self._journal.close()
        return again

    def _recall(self, grpc_port: int) -> Identity:
        """Put back what the journal remembers, and say who this executor is."""
        whole = recover_messages(self._prepared.state_dir / "guards", self._journal, Packer())
        kept = self._journal.remembered()
        finished = {*kept.seen, *(report.key for report in kept.reports)}
        self._attempts.book.restore(epoch_max=kept.epoch_max, tombstones=kept.tombstones, finished=finished)
        self._reporter.restore(kept.reports)
        instance = self._instance()
        self._journal.start()
        return Identity(
            incarnation=self._prepared.guards.incarnation,
            instance=instance.id,
            node_id=self._config.node_id,
            boot_id=guard_state.boot_id(),
            pid=os.getpid(),
            grpc_host=self._config.advertised,
            grpc_port=grpc_port,
            slots=self._config.slots or 0,
            most_slots=self._prepared.most_slots,
            ready_slots=len(self._prepared.guards.slots),
            version=VERSION,
            labels=self._config.labels,
            previous_incarnation=instance.previous,
            # Whoever is attested dead has its runs taken for lost, so not before all that ended is known to be told.
            previous_verified_empty=self._prepared.settled.get(instance.previous, False)
            and whole
            and self._reporter.pending <= INHERITED,
        )

    def _instance(self) -> Instance:
        meta = self._journal.meta
        kept = Kept(instance=meta("instance"), machine=meta("machine"), registered=meta("registered"))
        instance = instance_of(kept, machine=self._machine, new_id=IdSource().uuid())
        if instance.copied:
            _log.warning(
                "the state directory comes from another machine: this executor is a new instance",
                instance=instance.id,
                before=kept.instance,
            )
        return instance

    async def _join(self, identity: Identity, stop: Stop) -> Registered | None:
        # In this order: after a crash between the two the directory still counts as copied.
        await self._journal.set_meta("instance", identity.instance)
        await self._journal.set_meta("machine", self._machine)
        try:
            registered = await join(
                lambda: self._gateway.register(
                    identity, self._attempts.book.epoch_max, self._reporter.first(INHERITED)
                ),
                clock=self._clock,
                stop=stop,
                backoff=Backoff(base=0.2, cap=2.0),
            )
        except TobanError as error:
            # Without its key this incarnation is lost; the next one attests its end.
            await self._journal.set_meta("registered", identity.incarnation)
            self._heartbeat.over = f"its key never arrived: {error.message}"
            return None
        if registered is None:
            return None
        await self._journal.set_meta("registered", identity.incarnation)
        for old in self._prepared.settled:
            guard_state.forget(self._prepared.state_dir / "guards", old)
        await self._attempts.learn_epoch(registered.epoch)
        if registered.max_jobs and not self._fits(registered.max_jobs):
            return None
        self._attempts.lease = HoldSide(lease_ms=registered.lease_ms, margin_ms=registered.margin_ms)
        _log.info("registered", worker_id=registered.worker_id, incarnation=identity.incarnation)
        return registered

    def _fits(self, wanted: int) -> bool:
        """The setting gives this executor so many slots. False when its guards are fewer: the next incarnation has enough."""
        guards, most = len(self._prepared.guards.slots), self._prepared.most_slots
        slots = min(wanted, most)
        if slots < wanted:
            _log.warning("max_jobs_per_worker is more than this machine can start", wanted=wanted, slots=slots)
        kept = slots == guards or self._keep(slots)
        if slots > guards and kept:
            self._heartbeat.over = f"max_jobs_per_worker is {slots}, its guards are {guards}"
            return False
        self._attempts.book.slots = min(slots, guards)
        return True

    def _keep(self, slots: int) -> bool:
        try:
            save_slots(self._prepared.state_dir, slots)
        except OSError as error:
            # The next incarnation would start with as few as this one, and so would all after it.
            _log.error("max_jobs_per_worker cannot be written down: its slots stay as they are", error=str(error))
            return False
        return True

    async def _serve(self, stop: Stop) -> bool:
        def leaving() -> bool:
            return stop.is_set() or self._drain.is_set()

        await self._until(leaving)
        if leaving():
            self._tell()
            # One that is not registered has nothing to wait for: nobody sends it runs.
            await self._retirement.drain(
                0.0 if self._attempts.lease is None else self._shutdown_seconds(),
                lambda: self._lease.over,
                told=lambda: self._heartbeat.told,
            )
            await self._until(stop.is_set)
            if not self._lease.over:
                await self._retirement.hand_in(to_others=self._attempts.lease is not None)
                return False
        _log.warning("incarnation is over", why=self._lease.over)
        await self._retirement.abandon(self._lease.over)
        await self._retirement.hand_in(to_others=False)
        return not leaving()

    async def _until(self, told: Callable[[], bool]) -> None:
        while not told() and not self._lease.over:
            await self._clock.sleep(TICK_SECONDS / 2)

    async def _farewell(self) -> None:
        if self._lease.over or self._attempts.lease is None or self._reporter.pending or self._collector.pending:
            # Its lease ends by itself; an outcome that nobody has taken yet comes with the next incarnation.
            return
        try:
            await self._heartbeat.farewell()
        except TobanError as error:
            _log.warning("nobody has heard that this executor has stopped", error=error.message)

    def _shutdown_seconds(self) -> float:
        own = self._config.shutdown_timeout_seconds
        return self._settings.known["shutdown_timeout_seconds"] if own is None else own

    def _logs_and_reports(self) -> list[Loop]:
        collect = Loop("collect", self._collector.run_once, 1.0, self._clock)
        ship = Loop("ship", Shipper(journal=self._journal, archivers=self._archivers).run_once, 2.0, self._clock)
        self._collector.on_new, self._collector.on_stored = collect.wake, ship.wake
        self._collector.on_report = self._reporter.add
        self._collector.heard, self._collector.on_kept = self._guards.ack_offsets, self._guards.ack
        return [collect, ship, Loop("errors", self._sample_errors, SAMPLE_SECONDS, self._clock)]

    async def _sample_errors(self) -> None:
        self._errors.sample(self._clock.monotonic())

    def _lease_loops(self, registered: Registered) -> list[Loop]:
        reports = Loop("report", self._reporter.run_once, 1.0, self._clock)
        self._reporter.on_new = reports.wake

        def pace() -> float:
            told = registered.heartbeat_seconds
            wanted = self._settings.known["heartbeat_interval_seconds"] if self._settings.received else told
            return heartbeat_seconds(wanted, lease_ms=registered.lease_ms, margin_ms=registered.margin_ms)

        beats = Loop("heartbeat", self._heartbeat.run_once, pace, self._clock)
        self._settings.on_change = self._tell = beats.wake
        return [reports, beats, Loop("lease", self._lease.run_once, TICK_SECONDS, self._clock)]

    def _health(self) -> dict[str, Any]:
        attempts = self._attempts
        lease = Check("ok" if attempts.lease_valid else "error", self._heartbeat.state)
        busy = f"{attempts.book.slots - attempts.book.free_slots}/{attempts.book.slots}"
        return report(
            {
                "lease": lease,
                "slots": Check("ok", busy),
                "certificate": certificate_check(self._tls, self._clock.wall()),
                "draining": Check("ok" if attempts.book.accepting else "warning", not attempts.book.accepting),
                "errors_5_minutes": self._errors.check(),
                "reports": Check("ok" if self._reporter.pending < 1000 else "warning", self._reporter.pending),
            }
        )


def main(config: ExecutorConfig, prepared: Prepared) -> tuple[int, bool]:
    """Run one incarnation; the exit code, and whether the process should join again."""
    metrics.build_info("executor", VERSION)
    tracing.setup("executor", VERSION)
    again = False

    async def body(stop: Stop) -> None:
        nonlocal again
        again = await Executor(config=config, prepared=prepared).run(stop)

    code = run_service(body)
    tracing.shutdown()
    return code, again
