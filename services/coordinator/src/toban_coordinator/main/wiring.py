"""The parts of a coordinator, built by hand: what decides and acts; `grpc_server` builds what answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from toban_coordinator.adapters.executors import ExecutorOrders
from toban_coordinator.adapters.peers import PeerCalls
from toban_coordinator.adapters.redis_registry import RedisMirror
from toban_coordinator.adapters.secret_keys import FileKeys
from toban_coordinator.app.cluster.change_feed import ChangeFeed
from toban_coordinator.app.cluster.settings_stream import SettingsStreams
from toban_coordinator.app.executors.incarnation_keys import KnownExecutors
from toban_coordinator.app.executors.order_results import UndeliveredOrders
from toban_coordinator.app.external.external_claims import ExternalClaims
from toban_coordinator.app.placement.fast_path import CurrentFastPath
from toban_coordinator.app.placement.order_templates import StoredOrderTemplates
from toban_coordinator.app.runs.certain_ends import SLOTS
from toban_coordinator.app.secrets.secret_values import StoredSecretValues
from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.leadership import (
    Checker,
    ElectionDeps,
    Leadership,
    OnTurn,
    Presence,
    PresenceDeps,
    ServerTime,
    TermDeps,
    Watcher,
)
from toban_coordinator.loops import LoopDeps, leader_loops, lease_loops
from toban_coordinator.loops.executor_leases import LeaseDeps, Observer, least_lease_ms
from toban_coordinator.loops.external_locks import ClaimObserver
from toban_coordinator.loops.progress_writer import ProgressWriter
from toban_coordinator.loops.standing import StandingDeps, standing_loops
from toban_coordinator.main.connections import Connections, connect
from toban_coordinator.store.cluster.leader import Contender
from toban_coordinator.store.cluster.settings import SettingsCache
from toban_domain.epoch import Term, TokenSource
from toban_fencing.redis_locks import LeaderLock, SubleaderLock
from toban_fencing.worker_registry import Members, RunLeases
from toban_observability.error_rate import ErrorRate
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock, SystemClock
from toban_runtime.ids import IdSource
from toban_runtime.loop import Loop, WakeRegistry
from toban_transport.log_ticket import TicketSigner


@dataclass(frozen=True, slots=True, kw_only=True)
class Factories:
    """Where a coordinator gets time, identifiers, delays and connections from; tests and the simulation give others."""

    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=IdSource)
    backoff: Callable[[], Backoff] = lambda: Backoff(base=0.2, cap=5.0)
    connect: Callable[[CoordinatorConfig, Clock], Awaitable[Connections]] = connect


class Coordinator:
    """One coordinator. `worker_id` is drawn from PostgreSQL before."""

    def __init__(
        self,
        *,
        config: CoordinatorConfig,
        connections: Connections,
        factories: Factories,
        worker_id: int,
        release: str,
    ) -> None:
        self.connections = connections
        self.clock = clock = factories.clock
        self.ids = factories.ids
        pool, redis = connections.pool, connections.redis
        me = Contender(incarnation=self.ids.uuid(), worker_id=worker_id, address="", node_id=config.node_id)
        self.wakes = WakeRegistry()
        self.members = Members(link=redis)
        self.server_time = ServerTime(clock=clock)
        self.settings = SettingsCache(pool=pool, clock=clock)
        self.settings_streams = SettingsStreams(source=self.settings)
        self.changes = ChangeFeed(pool=pool, clock=clock)
        self.observer = Observer(pool=pool, clock=clock)
        self.claim_observer = ClaimObserver(pool=pool, clock=clock)
        self.claims = ExternalClaims(pool=pool, clock=clock)
        self.errors = ErrorRate()
        self.mirror = RedisMirror(members=self.members, clock=clock, settings=self.settings)
        self.progress = ProgressWriter(pool=pool)
        self.secret_keys = FileKeys(config.secrets_key_file)
        self.orders = ExecutorOrders(
            channels=connections.channels,
            signer=TicketSigner(connections.tls),
            queue=UndeliveredOrders(pool=pool),
            templates=StoredOrderTemplates(pool=pool),
            secrets=StoredSecretValues(pool=pool, keys=self.secret_keys),
            directory=KnownExecutors(pool=pool),
        )
        self.fast_path = CurrentFastPath()
        self.leadership = self._make_leadership(me)
        self.presence = self._make_presence(me, release)
        peers = PeerCalls(channels=connections.channels, incarnation=me.incarnation)
        self.watcher = Watcher(leadership=self.leadership, peers=peers, clock=clock)
        self.wakes.register("leader", self.leadership.read_leader_row)
        self.wakes.register("claims", self.claims.wake)
        self.wakes.register(SLOTS, lambda: self.fast_path.wake_waiting(self.wakes))
        self.standing_loops = standing_loops(
            StandingDeps(
                pool=pool,
                clock=clock,
                leader=self.leadership,
                settings=self.settings,
                errors=self.errors,
                observer=self.observer,
                claims=self.claim_observer,
                progress=self.progress,
                wakes=self.wakes,
                presence=self.presence.run_once,
                mirror=self.mirror.run_once,
                subleader=self._make_checker(peers).run_once,
            )
        )

    def _make_leadership(self, me: Contender) -> Leadership:
        redis = self.connections.election_redis
        return Leadership(
            deps=ElectionDeps(
                thread=self.connections.election_thread,
                pool=self.connections.election_pool,
                lock=LeaderLock(link=redis, worker_id=me.worker_id),
                members=Members(link=redis),
                clock=self.clock,
                server_time=self.server_time,
            ),
            contender=me,
            term_deps=TermDeps(
                pool=self.connections.pool,
                clock=self.clock,
                now=self.server_time.now,
                make_loops=self._term_loops,
                least_lease_ms=lambda: least_lease_ms(self.settings),
                tick_seconds=lambda: self.settings.known["leader_tick_seconds"],
                wakes=self.wakes,
            ),
        )

    def _make_checker(self, peers: PeerCalls) -> Checker:
        return Checker(
            pool=self.connections.pool,
            leadership=self.leadership,
            peers=peers,
            members=self.members,
            now=self.server_time,
            settings=self.settings,
        )

    def _make_presence(self, me: Contender, release: str) -> Presence:
        return Presence(
            deps=PresenceDeps(
                pool=self.connections.pool,
                clock=self.clock,
                mirror=self.mirror,
                subleader=SubleaderLock(link=self.connections.redis, node_id=me.node_id, worker_id=me.worker_id),
                server_time=self.server_time,
                release=release,
                certificate_end=lambda: self.connections.tls.current().certificate.not_valid_after_utc,
                on_settings=self._look_for_settings,
            ),
            leadership=self.leadership,
        )

    def _look_for_settings(self, version: int) -> None:
        """A change whose notification was lost is found so, without a statement of its own each second."""
        if version != self.settings.known.version:
            self.wakes.wake("settings")

    def _term_loops(self, term: Term, tokens: TokenSource, on_turn: OnTurn) -> Sequence[Loop]:
        """Fresh loops for each term."""
        deps = LoopDeps(
            pool=self.connections.pool,
            quick=self.connections.quick_pool,
            term=term,
            tokens=tokens,
            orders=self.orders,
            clock=self.clock,
            server_time=self.server_time,
            settings=self.settings,
            fast_path=self.fast_path,
            marks=RunLeases(link=self.connections.marks),
            holds=lambda: self.leadership.holds(term.epoch),
            on_turn=on_turn,
            on_fired=self.leadership.note_fire,
        )
        lease_deps = LeaseDeps(
            pool=self.connections.pool,
            clock=self.clock,
            observer=self.observer,
            probe=self.orders,
            members=self.members,
            settings=self.settings,
            holds=deps.holds,
        )
        return [*leader_loops(deps, self.claim_observer), *lease_loops(lease_deps, term, on_turn)]
