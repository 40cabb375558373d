"""A term's first act on a cluster that is not settled, to wait for a whole lease, of whoever may hold one (docs/fencing.md 3.2); and its end."""

import asyncio

import psycopg
import pytest

from toban_coordinator.leadership.term import RunningTerm, TermDeps
from toban_coordinator.leadership.term_hold import TermProgress
from toban_coordinator.store.cluster import leader
from toban_coordinator.store.executors import executors
from toban_domain.epoch import EpochExhausted
from toban_domain.errors import FencedOut
from toban_fencing.executor_lease import take_seconds
from toban_runtime.ids import IdSource
from toban_runtime.loop import Loop, WakeRegistry
from toban_testing.kept_sessions import kept_pool
from toban_testing.waiting import until

IDS = IdSource()
STEP = 0.25


@pytest.fixture
async def pool(coordinator_url):
    opened = await kept_pool(coordinator_url, max_size=4)
    yield opened
    await opened.close()


async def register(pool, seconds):
    new = executors.Registration(
        incarnation=IDS.uuid(),
        instance=f"x{seconds}",
        node_id="n",
        boot_id="b",
        pid=1,
        grpc_host="h",
        grpc_port=1,
        slots=4,
    )
    assert await executors.register(pool, new, key_hash=b"h", lease_ms=seconds * 1000)
    return new.incarnation


@pytest.mark.parametrize(
    ("leases", "off", "waits"),
    [((), (), 10), ((4,), (), 10), ((12, 14), (), 14), ((12,), (40,), 12)],
    ids=["no executor is known here", "shorter ones", "the longest one", "one that is off"],
)
async def test_it_waits_for_the_longest_lease_that_anybody_may_hold(pool, pg_url, fake_clock, leases, off, waits):
    for seconds in leases + off:
        incarnation = await register(pool, seconds)
        if seconds in off:
            async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as connection:
                await connection.execute(
                    "UPDATE scheduler.executors SET state = 'off', off_at = now() WHERE incarnation = %s", [incarnation]
                )
    async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as connection:
        await connection.execute("UPDATE scheduler.leader SET settled_timeline = settled_timeline + 1")
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=9, address="a:1", node_id="n")
    taken = await leader.take_over(pool, me, observed=0, beat=0)
    assert not taken.settled
    made = []

    deps = TermDeps(
        pool=pool,
        clock=fake_clock,
        now=fake_clock.wall,
        make_loops=lambda *given: made.append(given) or [],
        least_lease_ms=lambda: 10_000,
        tick_seconds=lambda: 1.0,
        wakes=WakeRegistry(),
    )
    term = RunningTerm(deps=deps, taken=taken, progress=TermProgress(taken.server_time), deposed=made.append)
    await sleeping(fake_clock)
    for _ in range(int(take_seconds(waits * 1000) / STEP)):
        assert not term.settled and not made
        await fake_clock.advance(STEP)
        await sleeping(fake_clock)
    async with asyncio.timeout(60):
        while not made:
            await fake_clock.advance(STEP)
            await asyncio.sleep(0.01)
    assert term.settled
    assert fake_clock.monotonic() >= take_seconds(waits * 1000)
    row = await leader.read_row(pool)
    again = await leader.take_over(pool, me, observed=row["epoch"], beat=row["beat"])
    assert again.settled, "the next term waits no more"
    term.cancel()


@pytest.mark.parametrize(
    ("error", "reason"), [(FencedOut(1), "a fence says so"), (EpochExhausted("x"), "its attempt numbers are used up")]
)
async def test_what_a_turn_finds_out_ends_the_term(pool, fake_clock, error, reason):
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=9, address="a:1", node_id="n")
    taken = await leader.take_over(pool, me, observed=0, beat=0)
    ended = asyncio.Queue()

    async def turn():
        raise error

    deps = TermDeps(
        pool=pool,
        clock=fake_clock,
        now=fake_clock.wall,
        make_loops=lambda _term, _tokens, on_turn: [Loop("work", turn, 1.0, fake_clock, on_turn=on_turn)],
        least_lease_ms=lambda: 10_000,
        tick_seconds=lambda: 1.0,
        wakes=WakeRegistry(),
    )
    term = RunningTerm(deps=deps, taken=taken, progress=TermProgress(taken.server_time), deposed=ended.put_nowait)
    async with asyncio.timeout(60):
        assert await ended.get() == reason
    term.cancel()


@pytest.mark.parametrize("end", ["finished", "cancelled"])
async def test_loops_of_a_term_that_ended_are_woken_no_more(pool, fake_clock, end):
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=9, address="a:1", node_id="n")
    taken = await leader.take_over(pool, me, observed=0, beat=0)
    wakes, made, turned = WakeRegistry(), [], asyncio.Event()

    async def turn():
        turned.set()

    class WokenLoop(Loop):
        woken = 0

        def wake(self):
            self.woken += 1
            super().wake()

    def make_loops(_term, _tokens, on_turn):
        made.extend(WokenLoop(name, turn, 1.0, fake_clock, on_turn=on_turn) for name in ("fire", "assign"))
        return made

    deps = TermDeps(
        pool=pool,
        clock=fake_clock,
        now=fake_clock.wall,
        make_loops=make_loops,
        least_lease_ms=lambda: 10_000,
        tick_seconds=lambda: 1.0,
        wakes=wakes,
    )
    term = RunningTerm(deps=deps, taken=taken, progress=TermProgress(taken.server_time), deposed=lambda reason: None)
    async with asyncio.timeout(60):
        await turned.wait()
        wakes.wake("fire")
        assert [loop.woken for loop in made] == [1, 0]
        if end == "cancelled":
            term.cancel()
        await term.finish()
    before = [loop.woken for loop in made]
    wakes.wake("")
    assert [loop.woken for loop in made] == before


async def sleeping(clock):
    """Waits until the term sleeps: it has asked PostgreSQL what it wanted to know."""
    await until(lambda: clock.sleepers)
