"""Each setting has its effect, at once: on the leader's loops, on leases and orders, in Redis, in what coordinators say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis.asyncio
from structlog.testing import capture_logs

from toban_coordinator.adapters.redis_registry import RedisMirror
from toban_coordinator.leadership.subleader import Checker
from toban_coordinator.loops.executor_leases import ORDERS_TICK_SECONDS, LeaseDeps, LeaseKeeper, Observer, OverdueOrders
from toban_coordinator.ports.leader import LeaderView
from toban_coordinator.ports.peers import PeerStatus
from toban_coordinator.server.peer_service import PeerServer
from toban_coordinator.store.cluster import leader
from toban_coordinator.store.executors import executors
from toban_coordinator.store.placement import queued_orders
from toban_domain.epoch import Term
from toban_domain.errors import FencedOut
from toban_domain.outcome import AttemptKey
from toban_fencing.election_types import Overwrite
from toban_fencing.redis_client import RedisLink, open_client
from toban_fencing.redis_locks import LeaderLock
from toban_fencing.worker_registry import SEQUENCE_KEY, Members, worker_key
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import autocommit, fenced_tx, tx
from toban_testing.clock import FakeClock
from toban_testing.fake_coordinator import FixedSettings
from toban_testing.kept_sessions import kept_pool

IDS = IdSource()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def pool(pg_url: str) -> AsyncIterator[Pool]:
    opened = await kept_pool(pg_url)
    yield opened
    await opened.close()


@pytest.fixture
async def term(pool: Pool) -> Term:
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=99, address="a:1", node_id="n1")
    taken = await leader.take_over(pool, me, observed=0, beat=0)
    assert taken is not None
    return taken.term


@pytest.fixture
async def link(redis_url: str) -> AsyncIterator[RedisLink]:
    opened = RedisLink(client=open_client(redis_url), clock=SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
async def incarnation(pool: Pool) -> str:
    """A registered executor."""
    new = executors.Registration(
        incarnation=IDS.uuid(), instance="x", node_id="n", boot_id="b", pid=1, grpc_host="h", grpc_port=1, slots=4
    )
    assert await executors.register(pool, new, key_hash=b"h", lease_ms=600_000)
    return new.incarnation


async def state_of(pool: Pool, incarnation: str) -> str:
    async with autocommit(pool) as t:
        row = await t.fetch_one("SELECT state FROM scheduler.executors WHERE incarnation = %(i)s", {"i": incarnation})
    assert row is not None
    return str(row["state"])


class NoAnswer:
    """Pings that nobody answers; `asked` is set by each."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def ping(self, incarnation: str, address: str) -> str | None:
        self.asked.set()
        return None


@pytest.mark.seed(62, 109)
async def test_time_to_live_and_grace_say_when_a_silent_executor_is_detached(
    pool: Pool, term: Term, link: RedisLink, incarnation: str, fake_clock: Any
) -> None:
    settings, probe = FixedSettings(heartbeat_ttl_seconds=30, worker_detach_grace_seconds=20), NoAnswer()
    observer = Observer(pool=pool, clock=fake_clock)
    deps = LeaseDeps(
        pool=pool,
        clock=fake_clock,
        observer=observer,
        probe=probe,
        members=Members(link=link),
        settings=settings,
        holds=lambda: True,
    )
    keeper = LeaseKeeper(deps=deps, term=term)
    await keeper.run_once()
    # A gap between reads would start the wait again.
    for _ in range(49):
        await fake_clock.advance(1.0)
        await observer.run_once()
    await keeper.run_once()
    assert not probe.asked.is_set()
    settings.set(worker_detach_grace_seconds=18)
    for _ in range(3):
        probe.asked.clear()
        await keeper.run_once()
        async with asyncio.timeout(60):
            await probe.asked.wait()
        await asyncio.sleep(0)
    await keeper.run_once()
    assert await state_of(pool, incarnation) == "detached"


async def revoke_told(pool: Pool, term: Term, incarnation: str) -> None:
    """An order to revoke that the answer to a heartbeat had."""
    async with fenced_tx(pool, term) as t:
        await queued_orders.queue(t, incarnation=incarnation, kind="revoke", serial=1, orders=[(AttemptKey(5, 6), {})])
    await executors.grant(pool, [executors.Beat(incarnation=incarnation, echo=1 << 40)])


def overdue_orders(
    pool: Pool, term: Term, settings: FixedSettings, clock: FakeClock, holds: Callable[[], bool] = lambda: True
) -> OverdueOrders:
    unused: Any = None
    deps = LeaseDeps(
        pool=pool, clock=clock, observer=unused, probe=unused, members=unused, settings=settings, holds=holds
    )
    return OverdueOrders(deps=deps, term=term)


async def later(clock: FakeClock, keeper: OverdueOrders, seconds: float) -> int:
    """Executors that are cut within `seconds`, with a look at each tick."""
    cut = 0
    for _ in range(int(seconds / ORDERS_TICK_SECONDS)):
        await clock.advance(ORDERS_TICK_SECONDS)
        cut += await keeper.run_once()
    return cut


@pytest.mark.seed(62, 112)
async def test_an_order_that_stays_open_cuts_its_executor(
    pool: Pool, term: Term, incarnation: str, fake_clock: FakeClock
) -> None:
    settings = FixedSettings(reassign_after_seconds=60)
    keeper = overdue_orders(pool, term, settings, fake_clock)
    await revoke_told(pool, term, incarnation)
    assert await keeper.run_once() == 0
    assert await later(fake_clock, keeper, 55) == 0
    settings.set(reassign_after_seconds=100)
    assert await later(fake_clock, keeper, 30) == 0
    settings.set(reassign_after_seconds=60)
    [order] = (await queued_orders.updates(pool, {incarnation: []}))[incarnation].orders
    await queued_orders.finish(pool, incarnation=incarnation, results={order.id: "running"})
    assert await keeper.run_once() == 0, "it was answered"
    async with fenced_tx(pool, term) as t:
        await t.execute("UPDATE scheduler.executor_orders SET done_at = NULL")
    assert await later(fake_clock, keeper, 65) == 1
    assert await state_of(pool, incarnation) == "cut"


async def test_an_outage_does_not_count_for_an_open_order(
    pool: Pool, term: Term, incarnation: str, fake_clock: FakeClock
) -> None:
    """Nor the time before the executor could know of it."""
    keeper = overdue_orders(pool, term, FixedSettings(reassign_after_seconds=60), fake_clock)
    async with fenced_tx(pool, term) as t:
        await queued_orders.queue(t, incarnation=incarnation, kind="revoke", serial=1, orders=[(AttemptKey(5, 6), {})])
    assert await later(fake_clock, keeper, 200) == 0, "no heartbeat has come since"
    await executors.grant(pool, [executors.Beat(incarnation=incarnation, echo=1 << 40)])
    assert await later(fake_clock, keeper, 55) == 0
    await fake_clock.advance(120)
    assert await keeper.run_once() == 0
    assert await later(fake_clock, keeper, 55) == 0
    assert await later(fake_clock, keeper, 5) == 1


async def test_only_the_leader_cuts_and_only_who_is_not_off(
    pool: Pool, term: Term, incarnation: str, fake_clock: FakeClock
) -> None:
    keeper = overdue_orders(pool, term, FixedSettings(reassign_after_seconds=60), fake_clock)
    await revoke_told(pool, term, incarnation)
    async with tx(pool) as t:
        await t.execute("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    assert await later(fake_clock, keeper, 70) == 0
    async with tx(pool) as other:
        await other.execute("UPDATE scheduler.executors SET state = 'on', off_at = NULL")
    assert await later(fake_clock, keeper, 55) == 0
    async with tx(pool) as other:
        await other.execute("UPDATE scheduler.leader SET epoch = epoch + (1 << 27)")
    with pytest.raises(FencedOut):
        await later(fake_clock, keeper, 20)
    assert await state_of(pool, incarnation) == "on"


async def test_a_look_at_open_orders_holds_up_no_take_over(
    pool: Pool, term: Term, incarnation: str, fake_clock: FakeClock
) -> None:
    """It takes the fence, which waits for a take-over and keeps one waiting, only where there is something to write."""
    keeper = overdue_orders(pool, term, FixedSettings(reassign_after_seconds=60), fake_clock)
    await revoke_told(pool, term, incarnation)
    async with tx(pool) as taking:
        await taking.execute("SELECT 1 FROM scheduler.leader FOR UPDATE")
        assert await later(fake_clock, keeper, 55) == 0
    assert await later(fake_clock, keeper, 10) == 1


async def test_a_term_that_ends_within_a_turn_cuts_no_executor(
    pool: Pool, term: Term, incarnation: str, fake_clock: FakeClock
) -> None:
    holds = True
    keeper = overdue_orders(pool, term, FixedSettings(reassign_after_seconds=60), fake_clock, holds=lambda: holds)
    await revoke_told(pool, term, incarnation)
    assert await later(fake_clock, keeper, 60) == 0
    holds = False
    with pytest.raises(FencedOut):
        await later(fake_clock, keeper, 5)
    assert await state_of(pool, incarnation) == "on"


@pytest.mark.seed(6)
async def test_worker_hashes_live_for_the_time_to_live(link: RedisLink, redis_url: str) -> None:
    settings = FixedSettings(heartbeat_ttl_seconds=100)
    mirror = RedisMirror(members=Members(link=link), clock=SystemClock(), settings=settings)
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        for seconds in (100, 7):
            settings.set(heartbeat_ttl_seconds=seconds)
            mirror.put(5, {"role": "worker"})
            before = SystemClock().monotonic()
            await mirror.run_once()
            left = await client.pttl(worker_key(5)) / 1000
            # What has passed meanwhile, and the millisecond that Redis rounds by.
            assert seconds - (SystemClock().monotonic() - before) - 0.01 <= left <= seconds


@pytest.mark.seed(66)
async def test_the_mirror_of_worker_ids_follows_executors_and_returns_after_a_flush(
    link: RedisLink, redis_url: str
) -> None:
    mirror = RedisMirror(members=Members(link=link), clock=SystemClock(), settings=FixedSettings())
    async with redis.asyncio.Redis.from_url(redis_url, decode_responses=True) as client:
        mirror.put(5, {"role": "leader"})
        mirror.put(9, {"role": "worker"})
        await mirror.run_once()
        assert await client.get(SEQUENCE_KEY) == "9"
        await client.flushall()
        # The newest executor is gone by now; its number is not drawn again.
        mirror.put(5, {"role": "leader"})
        await mirror.run_once()
        assert await client.get(SEQUENCE_KEY) == "9"


class Leader:
    """A leader whose last tick the test sets, seen by its sub-leader."""

    def __init__(self) -> None:
        self.shown = LeaderView(epoch=7, worker_id=3, address="a:1", role="subleader", last_tick_at=NOW)

    def view(self) -> LeaderView:
        return self.shown

    def beat_still_seconds(self) -> float:
        return 0.0


class Time:
    """PostgreSQL's clock, ten seconds after the last tick."""

    skew_seconds = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=10)


class Stuck:
    """Peers that say that they do not tick."""

    async def status(self, address: str) -> PeerStatus:
        return PeerStatus(incarnation="i", role="leader", epoch=7, ticking=False)


@pytest.mark.seed(62, 105)
async def test_how_long_a_leader_may_go_without_a_tick(link: RedisLink, pool: Pool) -> None:
    settings, seen, members = FixedSettings(leader_stale_seconds=11), Leader(), Members(link=link)
    checker = Checker(
        pool=pool,
        leadership=seen,  # type: ignore[arg-type]
        peers=Stuck(),  # type: ignore[arg-type]
        members=members,
        now=Time(),
        settings=settings,
    )
    await checker.run_once()
    lock = LeaderLock(link=link, worker_id=3)
    assert (await lock.renew(7, overwrite=Overwrite.CANDIDATE)).degrade is None
    settings.set(leader_stale_seconds=9)
    with capture_logs() as lines:
        await checker.run_once()
        await checker.run_once()
    assert (await lock.renew(7, overwrite=Overwrite.CANDIDATE)).degrade == 7
    assert [line["epoch"] for line in lines] == [7], "told once a term, however long nobody can obey"

    server = PeerServer(incarnation="i", leader=seen, now=Time(), settings=settings)
    seen.shown = replace(seen.shown, role="leader", leading=True)
    assert not (await server.GetStatus(pb.PeerStatusRequest(), None)).ticking
    settings.set(leader_stale_seconds=11)
    assert (await server.GetStatus(pb.PeerStatusRequest(), None)).ticking
