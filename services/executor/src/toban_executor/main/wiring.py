"""Constructs one incarnation by hand. `Factories` makes what touches the outside, so that tests can replace it."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from toban_domain.settings import SETTINGS, Settings
from toban_executor.adapters.container_steps import LEFT_SECONDS
from toban_executor.adapters.coordinator_client import CoordinatorClient
from toban_executor.adapters.crash_recovery import recover_messages
from toban_executor.adapters.guard_client import GuardClient
from toban_executor.adapters.host_info import fingerprint, vitals
from toban_executor.adapters.journal import Journal
from toban_executor.adapters.log_client import ArchiverClient, Packer
from toban_executor.adapters.program_lookup import ProgramFinder, load_allow_list
from toban_executor.adapters.state_dir import instance_secret, save_slots
from toban_executor.app.attempt_manager import AttemptManager, Launcher
from toban_executor.app.job_notes import JobNotes
from toban_executor.app.log_collector import LogCollector
from toban_executor.app.outcome_reporter import OutcomeReporter
from toban_executor.app.recovery import Recovery
from toban_executor.app.registration import Registration
from toban_executor.app.shutdown import Shutdown
from toban_executor.config import ExecutorConfig
from toban_executor.decide.models import StartOrder
from toban_executor.decide.programs import ProgramRules
from toban_executor.decide.start_queue import MOST_A_SLOT, StartThrottle
from toban_executor.decide.usage import SAMPLE_SECONDS as USAGE_SECONDS
from toban_executor.guard.witness import WitnessCredentials, fill
from toban_executor.loops.continuation import Continuation
from toban_executor.loops.heartbeat import Heartbeat, LeaseWatchdog, Machine
from toban_executor.loops.incarnation import Connections, Health, Incarnation, Loops, UseCases
from toban_executor.loops.log_shipper import QUARANTINE_SECONDS, LogShipper, Quarantine
from toban_executor.loops.remote_ends import RemoteEnds
from toban_executor.loops.renewal import CHECK_SECONDS, Renewal
from toban_executor.main.own_steps import OwnSteps
from toban_executor.ports.coordinator import Identity, Registered
from toban_executor.ports.guards import Prepared
from toban_executor.server import WorkerService, add_to_server
from toban_fencing.order_book import OrderBook
from toban_observability import metrics
from toban_observability.admin_port import AdminPort
from toban_observability.error_rate import SAMPLE_SECONDS
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock, SystemClock
from toban_runtime.ids import IdSource
from toban_runtime.loop import Loop
from toban_runtime.settings_watch import SettingsWatch
from toban_transport.channel import ChannelPool
from toban_transport.issue import complete
from toban_transport.server import GrpcServer, build_server
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import certificate_check

_settings_version = metrics.gauge("toban_executor_settings_version", "Version of the settings that this executor uses.")

# The longest wait between two tries to register.
MAX_REGISTER_DELAY_SECONDS = SETTINGS["executor_lease_seconds"].default / 2


_Complete = Callable[[StartOrder], StartOrder]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factories:
    """Clock, ids and backoff, and the makers of transports, journal and guard client.

    After an outage of more than a lease a whole fleet registers: it spreads over half of the default lease.
    """

    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=IdSource)
    backoff: Backoff = field(
        default_factory=partial(Backoff, base=0.2, cap=MAX_REGISTER_DELAY_SECONDS, factor=1.5, jitter=0.9)
    )
    channels: Callable[..., ChannelPool] = ChannelPool
    server: Callable[..., GrpcServer] = build_server
    admin: Callable[..., AdminPort] = AdminPort
    gateway: Callable[..., CoordinatorClient] = CoordinatorClient
    archivers: Callable[..., ArchiverClient] = ArchiverClient
    journal: Callable[[Path], Journal] = Journal
    guards: Callable[..., GuardClient] = GuardClient


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outside:
    """What is connected to the outside."""

    tls: TlsFiles
    channels: ChannelPool
    journal: Journal
    guards: GuardClient
    gateway: CoordinatorClient
    archivers: ArchiverClient


def build(own: OwnSteps, make: Factories | None = None) -> Incarnation:
    """Everything of one incarnation; call it on the event loop. Raises TobanError for a bad journal, certificate, allow-list or setting."""
    config, prepared, make = own.config, own.prepared, make or Factories()
    clock, outside = make.clock, _connect(config, prepared, make)
    journal, guards, gateway = outside.journal, outside.guards, outside.gateway
    # The objects below wake the loops that run them, so each loop is made first and looks its object up at its first turn.
    collect = Loop("collect", lambda: collector.run_once(), 1.0, clock)
    shipper = LogShipper(journal=journal, archivers=outside.archivers)
    ship = Loop("ship", shipper.run_once, 2.0, clock)
    reports = Loop("report", lambda: reporter.run_once(), 1.0, clock)
    heartbeats = Loop("heartbeat", lambda: heartbeat.run_once(), lambda: heartbeat.interval_seconds(), clock)
    reporter = _reporter(prepared, outside, reports.wake, clock, lambda: attempts.waiting.length)
    collector = LogCollector(
        journal=journal,
        guards=guards,
        pack=Packer(),
        clock=clock,
        max_journal_bytes=config.log_budget_mb << 20,
        wake=collect.wake,
        wake_shipper=ship.wake,
        report=reporter.add,
    )
    attempts = _attempt_manager(
        config,
        prepared,
        outside,
        reporter=reporter,
        collector=collector,
        settings=lambda: settings.known,
        wake_heartbeat=heartbeats.wake,
        clock=clock,
    )
    refused = Quarantine(reporter=reporter, shipper=shipper, wake_shipper=ship.wake)
    quarantine = Loop("quarantine", refused.run_once, QUARANTINE_SECONDS, clock)
    apply = partial(_apply_settings, attempts, [heartbeats, quarantine])
    settings = SettingsWatch(source=gateway, clock=clock, on_version=apply)
    heartbeat = Heartbeat(
        gateway=gateway,
        attempts=attempts,
        settings=settings,
        machine=_machine(config, prepared, outside.tls, shipper, clock),
        on_archivers=partial(_learn_archivers, outside.archivers, quarantine),
        clock=clock,
    )
    health = Health(attempts=attempts, certificate=lambda: certificate_check(outside.tls, clock.wall()), clock=clock)
    return Incarnation(
        config=config,
        prepared=prepared,
        connections=_connections(config, outside, attempts, own.complete, health, make),
        use_cases=_use_cases(config, prepared, outside, attempts, collector, make),
        loops=Loops(
            always=[collect, ship, quarantine, *_care(own, attempts, health, clock), *_renewal(config, outside, clock)],
            leased=[reports, heartbeats, *_remote_loops(own, reporter, clock), *_lease_loops(gateway, attempts, clock)],
            settings=settings,
            heartbeat=heartbeat,
            wake_heartbeat=heartbeats.wake,
        ),
    )


def _care(own: OwnSteps, attempts: AttemptManager, health: Health, clock: Clock) -> list[Loop]:
    """What runs whatever the lease is, beside the logs."""
    loops = [
        Loop("errors", health.sample_errors, SAMPLE_SECONDS, clock),
        Loop("usage", attempts.notes.sample_usage, USAGE_SECONDS, clock),
    ]
    if own.config.container_engine is not None:

        def live() -> list[int]:
            return [key.token for key, _state in attempts.book.live]

        loops.append(Loop("containers", lambda: own.containers.remove_left(live), LEFT_SECONDS, clock))
    return loops


def _renewal(config: ExecutorConfig, outside: _Outside, clock: Clock) -> list[Loop]:
    if not config.renew_certificate:
        return []
    renewal = Renewal(directory=config.tls_dir, tls=outside.tls, gateway=outside.gateway, clock=clock)
    return [Loop("renewal", renewal.run_once, CHECK_SECONDS, clock)]


def _lease_loops(gateway: CoordinatorClient, attempts: AttemptManager, clock: Clock) -> list[Loop]:
    """What keeps the lease beside the heartbeats; the first attempt after a rest wakes both."""
    continuation = Continuation(gateway=gateway, attempts=attempts, clock=clock)
    watchdog = LeaseWatchdog(attempts=attempts, clock=clock)
    loops = [
        Loop("continuation", continuation.run_once, continuation.wait_seconds, clock),
        Loop("lease", watchdog.run_once, watchdog.wait_seconds, clock),
    ]
    attempts.on_live = partial(_wake_all, loops)
    return loops


def _remote_loops(own: OwnSteps, reporter: OutcomeReporter, clock: Clock) -> list[Loop]:
    """What holds outcomes until the pods of their attempts have ended."""
    if own.kubernetes is None:
        return []
    loop = Loop("remote_ends", lambda: ends.run_once(), 1.0, clock)
    settle = own.config.kubernetes_settle_seconds
    ends = RemoteEnds(cluster=own.kubernetes, settle=settle, release=reporter.release, wake=loop.wake, clock=clock)
    reporter.hold, reporter.holds_inherited = ends.hold, own.leftovers
    return [loop]


def _connect(config: ExecutorConfig, prepared: Prepared, make: Factories) -> _Outside:
    if config.renew_certificate:
        complete(config.tls_dir)
    if config.renew_certificate:
        complete(config.tls_dir)
    tls = TlsFiles(config.tls_dir)
    channels = make.channels(tls=tls, trust_domain=config.trust_domain)
    gateway = make.gateway(
        channels=channels,
        addresses=config.coordinators,
        incarnation=prepared.guards.incarnation,
        clock=make.clock,
    )
    return _Outside(
        tls=tls,
        channels=channels,
        journal=make.journal(prepared.state_dir / "journal.sqlite3"),
        guards=make.guards(guards=prepared.guards, clock=make.clock),
        gateway=gateway,
        archivers=make.archivers(channels=channels, addresses=config.log_archivers, keys=gateway),
    )


def _reporter(
    prepared: Prepared, outside: _Outside, wake: Callable[[], None], clock: Clock, orders: Callable[[], int]
) -> OutcomeReporter:
    enough = len(prepared.guards.slots) // 2
    gateway, journal = outside.gateway, outside.journal
    return OutcomeReporter(gateway=gateway, journal=journal, wake=wake, clock=clock, enough=enough, orders=orders)


def _attempt_manager(
    config: ExecutorConfig,
    prepared: Prepared,
    outside: _Outside,
    *,
    reporter: OutcomeReporter,
    collector: LogCollector,
    settings: Callable[[], Settings],
    wake_heartbeat: Callable[[], None],
    clock: Clock,
) -> AttemptManager:
    rules = ProgramRules(
        allowed=load_allow_list(config.allow_list),
        resolve=ProgramFinder(),
        guarded=[
            one
            for one, there in (("container", config.container_engine), ("kubernetes", config.kubernetes_api))
            if there
        ],
    )
    book = OrderBook(
        incarnation=prepared.guards.incarnation,
        slots=len(prepared.guards.slots),
        unfit=rules.unfit,
        unreported=lambda: [*attempts.unanswered, *attempts.quarantined],
        may_wait=lambda order: order.may_wait,
        most_waiting=MOST_A_SLOT * len(prepared.guards.slots),
    )
    attempts = AttemptManager(
        book=book,
        guards=outside.guards,
        journal=outside.journal,
        reporter=reporter,
        collector=collector,
        launcher=Launcher(program=rules.program, home=prepared.isolation.home or str(Path.home())),
        notes=JobNotes(guards=outside.guards, gateway=outside.gateway, wake_heartbeat=wake_heartbeat, clock=clock),
        throttle=StartThrottle(len(os.sched_getaffinity(0))),
        freeze_max=lambda: settings()["lease_freeze_max_seconds"],
        tries=lambda: (
            settings().whole("continuation_retry_count"),
            settings()["continuation_retry_interval_seconds"],
        ),
        wake_heartbeat=wake_heartbeat,
        clock=clock,
    )
    return attempts


def _machine(config: ExecutorConfig, prepared: Prepared, tls: TlsFiles, shipper: LogShipper, clock: Clock) -> Machine:
    return Machine(
        labels=config.labels,
        load=lambda: os.getloadavg()[0],
        vitals=lambda: vitals(state_dir=prepared.state_dir, tls=tls, wall=clock.wall()),
        quarantined_chunks=lambda: shipper.quarantined,
    )


def _connections(
    config: ExecutorConfig,
    outside: _Outside,
    attempts: AttemptManager,
    complete: _Complete,
    health: Health,
    make: Factories,
) -> Connections:
    server = make.server(
        tls=outside.tls,
        trust_domain=config.trust_domain,
        clock=make.clock,
        shared_identity=config.tls_shared_identity,
    )
    server.add(add_to_server, WorkerService(attempts=attempts, complete=complete))
    return Connections(
        server=server,
        admin=make.admin(config.admin_host, config.admin_port, health.document, token_file=config.admin_token_file),
        channels=outside.channels,
        journal=outside.journal,
        guards=outside.guards,
    )


def _use_cases(
    config: ExecutorConfig,
    prepared: Prepared,
    outside: _Outside,
    attempts: AttemptManager,
    collector: LogCollector,
    make: Factories,
) -> UseCases:
    machine, journal = fingerprint(config.machine), outside.journal
    return UseCases(
        attempts=attempts,
        collector=collector,
        recovery=Recovery(
            config=config,
            prepared=prepared,
            machine=machine,
            journal=journal,
            attempts=attempts,
            new_id=make.ids.uuid,
            instance_secret=lambda fresh: instance_secret(prepared.state_dir, fresh=fresh),
            recover_messages=partial(recover_messages, prepared.state_dir / "guards", journal, Packer()),
        ),
        registration=Registration(
            gateway=outside.gateway,
            attempts=attempts,
            journal=journal,
            prepared=prepared,
            machine=machine,
            save_slots=partial(save_slots, prepared.state_dir),
            arm_witness=partial(_arm_witness, config, prepared),
            clock=make.clock,
            backoff=make.backoff,
        ),
        shutdown=Shutdown(
            attempts=attempts,
            collector=collector,
            journal=journal,
            clock=make.clock,
            longest_grace=math.inf if config.shutdown_grace_seconds is None else config.shutdown_grace_seconds,
        ),
    )


def _arm_witness(
    config: ExecutorConfig, prepared: Prepared, identity: Identity, registered: Registered
) -> Callable[[int], None]:
    if config.kubernetes_api:
        # Guards see no pods, so they attest no death: the next process does, or the lease ends.
        return lambda _nonce: None
    credentials = WitnessCredentials(
        incarnation=identity.incarnation,
        key=registered.incarnation_key,
        instance_secret=identity.instance_secret,
        state_dir=str(prepared.state_dir),
        coordinators=config.coordinators,
        log_archivers=config.log_archivers,
        tls_dir=str(config.tls_dir.absolute()),
        trust_domain=config.trust_domain,
        log_format=config.log_format,
        log_level=config.log_level,
        lease_seconds=registered.lease_ms / 1000,
    )
    return fill(prepared.guards.credentials, credentials)


def _apply_settings(attempts: AttemptManager, wake: Sequence[Loop], version: int) -> None:
    """The settings have changed, perhaps the interval of heartbeats, how long jobs may stay frozen, or what made a coordinator refuse outcomes."""
    _settings_version.set(version)
    attempts.apply_freeze_max()
    _wake_all(wake)


def _wake_all(loops: Sequence[Loop]) -> None:
    for loop in loops:
        loop.wake()


def _learn_archivers(archivers: ArchiverClient, quarantine: Loop, addresses: Sequence[str]) -> None:
    """Other archivers may accept what the ones before refused."""
    if archivers.learn(addresses):
        quarantine.wake()
