"""Executors' rows over a real PostgreSQL: registration, grants, orders, the fence (docs/fencing.md 3.5, 3.8)."""

import asyncio
from dataclasses import replace

import psycopg
import pytest

from toban_coordinator.loops.lease import LeaseDeps, LeaseKeeper, Observer
from toban_coordinator.server.grants import Granter
from toban_domain.epoch import Term
from toban_domain.errors import FencedOut
from toban_domain.outcome import AttemptKey
from toban_fencing.members import Members
from toban_fencing.redis_link import RedisLink, open_client
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_store.pool import open_pool
from toban_store.scheduler import executors, fence, leader, orders
from toban_store.tx import fenced_tx
from toban_testing.settings import FixedSettings

LEASE_MS = 10_000
IDS = IdSource()


def new(**changes):
    made = executors.Registration(
        incarnation=IDS.uuid(),
        instance="x1",
        node_id="n1",
        boot_id="b1",
        pid=7,
        grpc_host="127.0.0.1",
        grpc_port=4000,
        slots=4,
        labels={"zone": "a"},
    )
    return replace(made, **changes)


@pytest.fixture
async def pool(pg_url):
    opened = await open_pool(pg_url, application_name="test", min_size=1, max_size=6)
    yield opened
    await opened.close()


@pytest.fixture
async def sql(pg_url):
    async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as connection:

        async def run(text, *params):
            cursor = await connection.execute(text, params)
            return await cursor.fetchall() if cursor.description else cursor.rowcount

        yield run


@pytest.fixture
async def term(pool) -> Term:
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=99, address="a:1", node_id="n1")
    taken = await leader.take_over(pool, me, observed=0, beat=0)
    return taken.term


async def register(pool, **changes):
    made = new(**changes)
    answer = await executors.register(pool, made, key_hash=b"h", lease_ms=LEASE_MS)
    assert answer is not None
    return made.incarnation


def beat(incarnation, echo, **changes):
    return executors.Beat(incarnation=incarnation, echo=echo, **changes)


async def hold(sql, incarnation, state, token):
    """A run held by an incarnation, with its attempt; its id."""
    sent = "now()" if token else "NULL"
    (row,) = await sql(
        "INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, state, token, log_day,"
        f" assigned_incarnation, assigned_worker_id, assigned_at, dispatched_at, started_at) VALUES (1, 1, 'j', 'demand', now(), %s, %s,"
        f" current_date, %s, 1, now(), {sent}, CASE WHEN %s = 'RUNNING' THEN now() END) RETURNING id",
        state, token, incarnation, state,
    )  # fmt: skip
    if token:
        await sql(
            "INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, dispatched_at)"
            " VALUES (current_date, %s, %s, 1, 1, %s, 1, now())",
            row[0], token, incarnation,
        )  # fmt: skip
    return row[0]


async def run_state(sql, run_id):
    return (await sql("SELECT state FROM scheduler.runs_live WHERE id = %s", run_id))[0][0]


# ---------------------------------------------------------------- registration


async def test_register_inserts_and_never_overwrites(pool):
    made = new()
    first = await executors.register(pool, made, key_hash=b"one", lease_ms=LEASE_MS)
    assert first.lease_ms == LEASE_MS
    assert await executors.register(pool, replace(made, slots=9), key_hash=b"two", lease_ms=LEASE_MS) is None
    assert await executors.key_hash(pool, made.incarnation) == b"one"
    assert await executors.key_hash(pool, IDS.uuid()) is None


async def test_the_lease_is_fixed_at_registration_by_the_setting(pool, sql):
    await sql("INSERT INTO scheduler.settings (name, value) VALUES ('executor_lease_seconds', '4.5')")
    answer = await executors.register(pool, new(), key_hash=b"h", lease_ms=LEASE_MS)
    assert answer.lease_ms == 4500


@pytest.mark.parametrize("stored", ["3.9", "601", '"short"', "null"])
async def test_a_stored_lease_that_is_not_allowed_gives_way_to_the_default(pool, sql, stored):
    await sql("INSERT INTO scheduler.settings (name, value) VALUES ('executor_lease_seconds', %s::jsonb)", stored)
    answer = await executors.register(pool, new(), key_hash=b"h", lease_ms=LEASE_MS)
    assert answer.lease_ms == LEASE_MS


async def test_a_drained_instance_registers_draining(pool, sql):
    await sql("INSERT INTO scheduler.executor_drains (instance) VALUES ('x1')")
    incarnation = await register(pool)
    assert (await executors.grant(pool, [beat(incarnation, 0)]))[incarnation].state == "draining"
    await sql("DELETE FROM scheduler.executor_drains")
    assert (await executors.grant(pool, [beat(incarnation, 1)]))[incarnation].state == "on"


@pytest.mark.parametrize(
    ("change", "attested"),
    [
        ({"boot_id": "b2"}, True),
        ({"boot_id": "b2", "node_id": "n2"}, False),
        ({"boot_id": "b2", "instance": "x2"}, False),
        ({}, False),
        ({"previous": "the first"}, True),
        ({"previous": "the first", "node_id": "n2"}, False),
        ({"previous": "another"}, False),
    ],
)
async def test_who_attests_whose_death(pool, sql, change, attested):
    old = await register(pool)
    names = {"the first": old, "another": IDS.uuid()}
    await register(pool, **{key: names.get(value, value) for key, value in change.items()})
    ((reason,),) = await sql("SELECT attested_reason FROM scheduler.executors WHERE incarnation = %s", old)
    assert bool(reason) is attested


# ---------------------------------------------------------------- grants


async def test_each_heartbeat_is_a_grant(pool):
    incarnation = await register(pool)
    for expected in (1, 2, 3):
        grant = (await executors.grant(pool, [beat(incarnation, expected - 1)]))[incarnation]
        assert (grant.granted, grant.grant_seq) == (True, expected)


async def test_no_grant_while_the_echo_lags_and_the_current_number_is_told(pool):
    incarnation = await register(pool)
    seen = [(await executors.grant(pool, [beat(incarnation, 0)]))[incarnation] for _ in range(7)]
    assert [grant.granted for grant in seen] == [True] * 4 + [False] * 3
    assert seen[-1].grant_seq == 4
    assert (await executors.grant(pool, [beat(incarnation, 4)]))[incarnation].granted


async def test_an_echo_from_the_future_does_not_break_the_row(pool):
    incarnation = await register(pool)
    assert (await executors.grant(pool, [beat(incarnation, 1 << 40)]))[incarnation].granted


@pytest.mark.parametrize(("state", "granted"), [("draining", True), ("detached", True), ("cut", False)])
async def test_states_that_grant(pool, sql, state, granted):
    incarnation = await register(pool)
    await sql("UPDATE scheduler.executors SET state = %s", state)
    grant = (await executors.grant(pool, [beat(incarnation, 0, draining=state == "draining")]))[incarnation]
    assert (grant.granted, grant.state) == (granted, state)


async def test_an_incarnation_that_is_off_or_unknown_gets_nothing(pool, sql):
    incarnation = await register(pool)
    await sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    assert await executors.grant(pool, [beat(incarnation, 0), beat(IDS.uuid(), 0)]) == {}


async def test_the_epoch_maximum_is_only_raised(pool, sql):
    incarnation = await register(pool, epoch_max=5)
    await executors.grant(pool, [beat(incarnation, 0, epoch_max=9)])
    await executors.grant(pool, [beat(incarnation, 1, epoch_max=3)])
    assert await sql("SELECT epoch_max FROM scheduler.executors") == [(9,)]


async def test_waiting_heartbeats_share_one_commit(pool):
    granter = Granter(pool=pool)
    names = [await register(pool, instance=f"x{number}") for number in range(20)]
    answers = await asyncio.gather(*(granter.heartbeat(beat(name, 0), []) for name in names))
    assert {answer.grant.incarnation for answer in answers} == set(names)
    assert all(answer.grant.granted for answer in answers)


async def test_the_answer_names_what_is_not_held(pool, sql):
    incarnation, other = await register(pool), await register(pool, instance="x2")
    mine = AttemptKey(await hold(sql, incarnation, "RUNNING", 71), 71)
    sent = AttemptKey(await hold(sql, incarnation, "ASSIGNED", 72), 72)
    foreign = AttemptKey(await hold(sql, other, "RUNNING", 73), 73)
    older = AttemptKey(mine.run_id, 70)
    answer = await Granter(pool=pool).heartbeat(beat(incarnation, 0), [mine, sent, foreign, older])
    assert set(answer.news.not_held) == {foreign, older}
    assert answer.news.smallest_live_token == 71


async def test_open_orders_go_out_until_they_are_answered(pool, term):
    incarnation = await register(pool)
    key = AttemptKey(5, 6)
    for _ in range(2):
        async with fenced_tx(pool, term) as t:
            await orders.queue(t, incarnation=incarnation, kind="cancel", serial=3, orders=[(key, {"mode": "kill"})])
    answer = await Granter(pool=pool).heartbeat(beat(incarnation, 0), [])
    (order,) = answer.news.orders
    assert (order.kind, order.run_id, order.token, order.epoch, order.serial) == ("cancel", 5, 6, term.epoch, 3)
    await orders.finish(pool, incarnation=incarnation, results={order.id: "cancelling"})
    assert (await Granter(pool=pool).heartbeat(beat(incarnation, 1), [])).news.orders == ()


# ---------------------------------------------------------------- fence


def fence_of(incarnation, grant_seq):
    return fence.Fence(incarnation=incarnation, grant_seq=grant_seq, reason="test")


async def test_a_fence_takes_the_row_and_the_runs(pool, sql, term):
    incarnation = await register(pool)
    running = await hold(sql, incarnation, "RUNNING", 71)
    sent = await hold(sql, incarnation, "ASSIGNED", 72)
    named = await hold(sql, incarnation, "ASSIGNED", None)
    asked = await hold(sql, incarnation, "CANCEL_REQUESTED", 73)
    async with fenced_tx(pool, term) as t:
        result = await fence.fence(t, [fence_of(incarnation, 0)])
    assert result == fence.Fenced(incarnations=(incarnation,), runs=3)
    assert [await run_state(sql, run) for run in (running, sent, named, asked)] == [
        "ORPHANED",
        "ORPHANED",
        "PENDING",
        "CANCEL_REQUESTED",
    ]
    attempts = dict(await sql("SELECT run_id, state FROM scheduler.job_attempts"))
    assert attempts == {running: "LOST", sent: "LOST", asked: "DISPATCHED"}
    assert await sql("SELECT state, off_reason FROM scheduler.executors") == [("off", "test")]
    assert {row[0] for row in await sql("SELECT run_id FROM scheduler.job_events WHERE type = 'executor_fenced'")} == {
        running,
        sent,
        named,
    }
    assert await executors.grant(pool, [beat(incarnation, 0)]) == {}


async def test_a_grant_defeats_the_fence(pool, sql, term):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await executors.grant(pool, [beat(incarnation, 0)])
    async with fenced_tx(pool, term) as t:
        assert (await fence.fence(t, [fence_of(incarnation, 0)])).incarnations == ()
    assert await run_state(sql, run) == "RUNNING"


async def test_a_grant_under_way_and_a_fence_never_both_win(pool, term):
    for _ in range(20):
        incarnation = await register(pool)

        async def fenced(name=incarnation):
            async with fenced_tx(pool, term) as t:
                return (await fence.fence(t, [fence_of(name, 0)])).incarnations

        grants, off = await asyncio.gather(executors.grant(pool, [beat(incarnation, 0)]), fenced())
        assert bool(grants) != bool(off)


async def test_an_older_term_fences_nobody(pool, term):
    incarnation = await register(pool)
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=98, address="b:1", node_id="n1")
    assert await leader.take_over(pool, me, observed=term.epoch, beat=1)
    with pytest.raises(FencedOut):
        async with fenced_tx(pool, term) as t:
            await fence.fence(t, [fence_of(incarnation, 0)])


# ---------------------------------------------------------------- loops


class Probe:
    """Answers pings by address."""

    def __init__(self):
        self.asked = []

    async def ping(self, address):
        self.asked.append(address)


@pytest.fixture
async def keeper(pool, term, fake_clock, redis_url):
    link = RedisLink(client=open_client(redis_url), clock=SystemClock())
    observer = Observer(pool=pool, clock=fake_clock)
    probe, deposed = Probe(), []
    deps = LeaseDeps(
        pool=pool,
        clock=fake_clock,
        observer=observer,
        probe=probe,
        members=Members(link=link),
        depose=deposed.append,
        settings=FixedSettings(),
    )
    made = LeaseKeeper(deps=deps, term=term)
    made.probe, made.deposed, made.link = probe, deposed, link
    yield made
    await link.close()


async def state_of(sql, incarnation):
    return (await sql("SELECT state FROM scheduler.executors WHERE incarnation = %s", incarnation))[0][0]


async def test_a_silent_executor_is_pinged_detached_and_fenced(pool, sql, keeper, fake_clock):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await keeper.run_once()
    await fake_clock.advance(10.0)
    for _ in range(4):
        assert await keeper.run_once() == 0
        await asyncio.sleep(0.01)
    assert len(keeper.probe.asked) == 3
    assert await state_of(sql, incarnation) == "detached"
    assert await run_state(sql, run) == "RUNNING"
    await fake_clock.advance(0.4)
    assert await keeper.run_once() == 0
    await fake_clock.advance(0.12)
    assert await keeper.run_once() == 1
    assert await state_of(sql, incarnation) == "off"
    assert await run_state(sql, run) == "ORPHANED"


async def test_heartbeats_keep_an_executor(pool, sql, keeper, fake_clock):
    incarnation = await register(pool)
    for echo in range(30):
        await executors.grant(pool, [beat(incarnation, echo)])
        assert await keeper.run_once() == 0
        await fake_clock.advance(1.0)
    assert await state_of(sql, incarnation) == "on"


async def test_an_executor_that_hears_no_answers_is_fenced(pool, sql, keeper, fake_clock):
    incarnation = await register(pool)
    for _ in range(16):
        await executors.grant(pool, [beat(incarnation, 0)])
        await keeper.run_once()
        await fake_clock.advance(1.0)
    assert await state_of(sql, incarnation) == "off"
    assert keeper.probe.asked == []


async def test_an_attested_death_is_fenced_in_the_next_turn(pool, sql, keeper):
    old = await register(pool)
    run = await hold(sql, old, "RUNNING", 71)
    young = await register(pool, previous=old)
    assert await keeper.run_once() == 1
    assert await state_of(sql, old) == "off"
    assert await state_of(sql, young) == "on"
    assert await run_state(sql, run) == "ORPHANED"
    ((reason,),) = await sql("SELECT off_reason FROM scheduler.executors WHERE incarnation = %s", old)
    assert reason.startswith("attested")
    await executors.attest_stopped(pool, young)
    assert await keeper.run_once() == 1 and await state_of(sql, young) == "off"


async def test_a_detach_key_in_redis_detaches_and_is_audited(pool, sql, keeper, redis_url):
    import redis

    incarnation = await register(pool)
    ((worker_id,),) = await sql("SELECT worker_id FROM scheduler.executors")
    with redis.Redis.from_url(redis_url) as client:
        client.set(f"scheduler:detach:{worker_id}", "stop")
        await keeper.run_once()
        assert not client.exists(f"scheduler:detach:{worker_id}")
    assert await sql("SELECT state, detach_mode FROM scheduler.executors") == [("detached", "stop")]
    assert await sql("SELECT actor, action FROM scheduler.admin_action_log") == [("redis", "detach")]
    await keeper.run_once()
    assert await state_of(sql, incarnation) == "detached"


async def test_a_leader_below_the_executors_epoch_stops(pool, keeper, term):
    await register(pool, epoch_max=term.epoch + (1 << 27))
    await keeper.run_once()
    assert keeper.deposed == ["the executors know a higher epoch"]
