"""The parts of a coordinator, built by hand: connections first, then what thinks, then what answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.adapters.executors import ExecutorOrders
from toban_coordinator.adapters.peers import PeerCalls
from toban_coordinator.adapters.redis_registry import RedisMirror
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
from toban_coordinator.loops import LoopDeps, leader_loops
from toban_coordinator.loops.executor_leases import LEASE_TICK_SECONDS, LeaseDeps, LeaseKeeper, Observer
from toban_coordinator.loops.overdue_orders import ORDERS_TICK_SECONDS, OrderKeeper
from toban_coordinator.loops.progress_writer import TICK_SECONDS as PROGRESS_TICK_SECONDS
from toban_coordinator.loops.progress_writer import ProgressWriter
from toban_coordinator.loops.watchdog import TICK_SECONDS as WATCHDOG_TICK_SECONDS
from toban_coordinator.loops.watchdog import Watchdog
from toban_coordinator.ports.express import ExpressDesk
from toban_coordinator.server.settings_stream import SettingsStreams
from toban_coordinator.store.leader import Contender
from toban_coordinator.store.settings import SettingsCache
from toban_domain.epoch import Term, TokenSource
from toban_domain.settings import SETTINGS
from toban_fencing.redis_client import RedisLink, open_client
from toban_fencing.redis_locks import LeaderLock, SubleaderLock
from toban_fencing.worker_registry import Members, RunLeases
from toban_observability.error_rate import SAMPLE_SECONDS, ErrorRate
from toban_runtime.clock import Clock
from toban_runtime.ids import IdSource
from toban_runtime.loop import Loop
from toban_store.pool import Pool, open_pool
from toban_store.tx import FENCED_MS
from toban_transport.channel import ChannelPool
from toban_transport.log_ticket import TicketSigner
from toban_transport.tls import TlsFiles

SETTINGS_TICK_SECONDS = 2.0
POOL_SIZE = 12
# The election has connections of its own, so that load cannot starve it.
ELECTION_POOL_SIZE = 2
# So have grants and the look-ups of incarnation keys: a storm of reports must not make heartbeats wait. Grants go out one batch at a time.
GRANT_POOL_SIZE = 3
# Lone fenced statements, one at a time a loop.
QUICK_POOL_SIZE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Everything that is open to the outside."""

    pool: Pool
    quick_pool: Pool
    election_pool: Pool
    grant_pool: Pool
    redis: RedisLink
    # Marks of runs are many at once: their failures must not make the leader's lock wait.
    marks: RedisLink
    tls: TlsFiles
    channels: ChannelPool

    async def close(self) -> None:
        """Close all of it."""
        await self.channels.close()
        await self.redis.close()
        await self.marks.close()
        await self.election_pool.close()
        await self.grant_pool.close()
        await self.quick_pool.close()
        await self.pool.close()


async def connect(config: CoordinatorConfig, clock: Clock) -> Connections:
    """Open pools and clients; none of them needs the other side to be there yet."""
    tls = TlsFiles(config.tls_dir)
    return Connections(
        pool=await open_pool(config.database_url, application_name="toban/coordinator", min_size=2, max_size=POOL_SIZE),
        quick_pool=await open_pool(
            config.database_url,
            application_name="toban/quick",
            min_size=1,
            max_size=QUICK_POOL_SIZE,
            statement_ms=FENCED_MS,
        ),
        election_pool=await open_pool(
            config.database_url,
            application_name="toban/election",
            min_size=ELECTION_POOL_SIZE,
            max_size=ELECTION_POOL_SIZE,
        ),
        grant_pool=await open_pool(
            config.database_url, application_name="toban/grants", min_size=1, max_size=GRANT_POOL_SIZE
        ),
        redis=RedisLink(client=open_client(config.redis_url), clock=clock),
        marks=RedisLink(client=open_client(config.redis_url), clock=clock),
        tls=tls,
        channels=ChannelPool(tls=tls, trust_domain=config.trust_domain),
    )


class Parts:
    """What thinks and acts in one coordinator. `worker_id` is drawn from PostgreSQL before."""

    def __init__(
        self,
        *,
        config: CoordinatorConfig,
        connections: Connections,
        clock: Clock,
        ids: IdSource,
        worker_id: int,
        release: str,
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._pool = connections.pool
        self.contender = Contender(incarnation=ids.uuid(), worker_id=worker_id, address="", node_id=config.node_id)
        self.members = Members(link=connections.redis)
        self.server_time = ServerTime(clock=clock)
        self.settings = SettingsCache(pool=self._pool, clock=clock)
        self.settings_streams = SettingsStreams(source=self.settings)
        self.observer = Observer(pool=self._pool, clock=clock)
        self.errors = ErrorRate()
        self.mirror = RedisMirror(members=self.members, clock=clock, settings=self.settings)
        self.progress = ProgressWriter(pool=self._pool)
        self.orders = ExecutorOrders(
            channels=connections.channels, signer=TicketSigner(connections.tls), pool=self._pool
        )
        self.desk = ExpressDesk()
        self.leadership = self._make_leadership()
        self.presence = self._make_presence(config.node_id, release)
        self._peers = PeerCalls(channels=connections.channels, incarnation=self.contender.incarnation)
        self.watcher = Watcher(leadership=self.leadership, peers=self._peers, clock=clock)
        self.checker = Checker(
            leadership=self.leadership,
            peers=self._peers,
            members=self.members,
            now=self.server_time,
            settings=self.settings,
        )
        self._watchdog = Watchdog(pool=self._pool, leader=self.leadership, settings=self.settings)
        self.standing_loops = self._make_standing_loops()

    def _make_leadership(self) -> Leadership:
        return Leadership(
            deps=ElectionDeps(
                pool=self._connections.election_pool,
                lock=LeaderLock(link=self._connections.redis, worker_id=self.contender.worker_id),
                members=self.members,
                clock=self._clock,
                server_time=self.server_time,
            ),
            contender=self.contender,
            term_deps=TermDeps(
                pool=self._pool,
                clock=self._clock,
                now=self.server_time.now,
                make_loops=self._leader_loops,
                least_lease_ms=self._least_lease_ms,
                known_epoch=self._known_epoch,
                tick_seconds=lambda: self.settings.known["leader_tick_seconds"],
            ),
        )

    def _make_presence(self, node_id: str, release: str) -> Presence:
        lock = SubleaderLock(link=self._connections.redis, node_id=node_id, worker_id=self.contender.worker_id)
        return Presence(
            deps=PresenceDeps(
                pool=self._pool,
                clock=self._clock,
                mirror=self.mirror,
                subleader=lock,
                server_time=self.server_time,
                release=release,
                certificate_end=lambda: self._connections.tls.current().certificate.not_valid_after_utc,
            ),
            leadership=self.leadership,
        )

    def _leader_loops(self, term: Term, tokens: TokenSource, on_turn: OnTurn) -> Sequence[Loop]:
        """Fresh loops for each term."""
        deps = LoopDeps(
            pool=self._pool,
            quick=self._connections.quick_pool,
            term=term,
            tokens=tokens,
            orders=self.orders,
            clock=self._clock,
            server_time=self.server_time,
            settings=self.settings,
            desk=self.desk,
            marks=RunLeases(link=self._connections.marks),
            on_turn=on_turn,
            on_fired=self.leadership.note_fire,
        )
        lease_deps = LeaseDeps(
            pool=self._pool,
            clock=self._clock,
            observer=self.observer,
            probe=self.orders,
            members=self.members,
            depose=lambda reason: self.leadership.depose(term.epoch, reason),
            settings=self.settings,
        )
        keeper = LeaseKeeper(deps=lease_deps, term=term)

        async def lease() -> int:
            self.leadership.flush_due()
            return await keeper.run_once()

        open_orders = OrderKeeper(pool=self._pool, term=term, settings=self.settings)
        return [
            *leader_loops(deps),
            Loop("lease", lease, LEASE_TICK_SECONDS, self._clock, on_turn=on_turn),
            Loop("orders", open_orders.run_once, ORDERS_TICK_SECONDS, self._clock, on_turn=on_turn),
        ]

    def _make_standing_loops(self) -> Sequence[Loop]:
        """Loops that every coordinator runs, whether it leads or not."""
        return [
            Loop("settings", self._refresh_settings, SETTINGS_TICK_SECONDS, self._clock),
            Loop("errors", self._sample_errors, SAMPLE_SECONDS, self._clock),
            Loop("observe", self._observe, 0.5, self._clock),
            Loop("presence", self.presence.run_once, 1.0, self._clock),
            Loop("mirror", self.mirror.run_once, 1.0, self._clock),
            Loop("progress", self.progress.run_once, PROGRESS_TICK_SECONDS, self._clock),
            Loop("subleader", self.checker.run_once, self._subleader_tick, self._clock),
            Loop("watchdog", self._watchdog.run_once, WATCHDOG_TICK_SECONDS, self._clock),
        ]

    def wake(self, name: str) -> None:
        """A notification came, or '' for all that may have been missed."""
        for loop in self.standing_loops:
            if loop.name == name or not name:
                loop.wake()
        self.leadership.wake(name)

    async def _refresh_settings(self) -> None:
        if await self.settings.refresh():
            # Loops that sleep by the old ticks.
            self.wake("")

    async def _sample_errors(self) -> None:
        self.errors.sample(self._clock.monotonic())

    def _subleader_tick(self) -> float:
        return self.settings.known["subleader_check_seconds"]

    def _least_lease_ms(self) -> int:
        name = "executor_lease_seconds"
        return int(1000 * max(SETTINGS[name].default, self.settings.known[name]))

    async def _known_epoch(self) -> int:
        await self.observer.run_once()
        return self.observer.epoch_max

    async def _observe(self) -> None:
        # A settled leader's loop `lease` reads more often than this one.
        view = self.leadership.view()
        if not (view.leading and view.settled):
            await self.observer.run_once()
