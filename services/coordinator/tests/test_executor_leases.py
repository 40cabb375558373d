"""Executors' rows over a real PostgreSQL: registration, grants, orders, the fence (docs/fencing.md 3.5, 3.8)."""

import asyncio
from dataclasses import replace

import pytest

from toban_coordinator.app.executors.lease_grants import LeaseGrants
from toban_coordinator.loops.executor_leases import LeaseDeps, LeaseKeeper, Observer
from toban_coordinator.ports.orders import ExecutorFacts
from toban_coordinator.store.cluster import leader
from toban_coordinator.store.executors import executors
from toban_coordinator.store.placement import queued_orders
from toban_domain.epoch import EpochProof
from toban_domain.errors import FencedOut
from toban_domain.outcome import AttemptKey
from toban_fencing.redis_client import RedisLink, open_client
from toban_fencing.worker_registry import Members
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_store.tx import fenced_tx, tx
from toban_testing.executor_rows import LEASE_MS, hold, register, registration, run_state
from toban_testing.fake_coordinator import FixedSettings

IDS = IdSource()


def beat(incarnation, echo, **changes):
    return executors.Beat(incarnation=incarnation, echo=echo, **changes)


# ---------------------------------------------------------------- registration


async def test_register_inserts_and_never_overwrites(pool):
    made = registration()
    first = await executors.register(pool, made, key_hash=b"one", lease_ms=LEASE_MS)
    assert first.lease_ms == LEASE_MS
    assert await executors.register(pool, replace(made, slots=9), key_hash=b"two", lease_ms=LEASE_MS) is None
    known = await executors.facts(pool, made.incarnation)
    assert isinstance(known, ExecutorFacts) and (known.key_hash, known.group) == (b"one", "default")
    assert isinstance(await executors.facts(pool, IDS.uuid()), EpochProof)


async def test_the_lease_is_fixed_at_registration_by_the_setting(pool, sql):
    await sql("INSERT INTO scheduler.settings (name, value) VALUES ('executor_lease_seconds', '4.5')")
    answer = await executors.register(pool, registration(), key_hash=b"h", lease_ms=LEASE_MS)
    assert answer.lease_ms == 4500


@pytest.mark.parametrize("stored", ["3.9", "601", '"short"', "null"])
async def test_a_stored_lease_that_is_not_allowed_gives_way_to_the_default(pool, sql, stored):
    await sql("INSERT INTO scheduler.settings (name, value) VALUES ('executor_lease_seconds', %s::jsonb)", stored)
    answer = await executors.register(pool, registration(), key_hash=b"h", lease_ms=LEASE_MS)
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
    await sql(
        "UPDATE scheduler.executors SET last_heartbeat_at = now() - interval '3.1 s', granted_at = now() - interval '4 s'"
    )
    names = {"the first": old, "another": IDS.uuid()}
    await register(pool, **{key: names.get(value, value) for key, value in change.items()})
    ((reason,),) = await sql("SELECT attested_reason FROM scheduler.executors WHERE incarnation = %s", old)
    assert bool(reason) is attested


# ---------------------------------------------------------------- grants


@pytest.mark.seed(79)
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
    assert await executors.observe(pool) == [], "nobody watches it any more"


async def test_waiting_heartbeats_share_one_commit(pool):
    granter = LeaseGrants(pool=pool)
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
    lost = AttemptKey(await hold(sql, incarnation, "ORPHANED", 70), 70)
    answer = await LeaseGrants(pool=pool).heartbeat(beat(incarnation, 0), [mine, sent, foreign, older, lost])
    assert set(answer.updates.not_held) == {foreign, older, lost}
    # That of the running attempt is confirmed: it stays with the executor because it lives.
    assert answer.updates.smallest_live_token == 72


async def test_no_executor_answers_the_orders_of_another(pool, term):
    incarnation, other = await register(pool), await register(pool, instance="x2")
    async with fenced_tx(pool, term) as t:
        await queued_orders.queue(t, incarnation=incarnation, kind="revoke", serial=3, orders=[(AttemptKey(5, 6), {})])
    (order,) = (await queued_orders.updates(pool, {incarnation: []}))[incarnation].orders
    await queued_orders.finish(pool, incarnation=other, results={order.id: "gone"})
    assert (await queued_orders.updates(pool, {incarnation: []}))[incarnation].orders == (order,)
    for word in ("running", "gone"):
        await queued_orders.finish(pool, incarnation=incarnation, results={order.id: word})
    async with tx(pool) as t:
        assert [done.result for done in await queued_orders.done(t, limit=9)] == ["running"], "the first answer counts"


@pytest.mark.parametrize(
    ("state", "mode"), [("cut", ""), ("off", ""), ("detached", "stop"), ("detached", "let_finish")]
)
async def test_a_leader_neither_detaches_nor_takes_back_in_other_states(pool, sql, term, state, mode):
    incarnation = await register(pool)
    off_at = "CASE WHEN %s = 'off' THEN now() END"
    await sql(f"UPDATE scheduler.executors SET state = %s, detach_mode = %s, off_at = {off_at}", state, mode, state)
    async with fenced_tx(pool, term) as t:
        assert await executors.detach(t, [incarnation], mode="") == []
        assert await executors.rejoin(t, [incarnation]) == []
    assert await sql("SELECT state, detach_mode FROM scheduler.executors") == [(state, mode)]


async def test_open_orders_go_out_until_they_are_answered(pool, term):
    incarnation = await register(pool)
    key = AttemptKey(5, 6)
    for _ in range(2):
        async with fenced_tx(pool, term) as t:
            await queued_orders.queue(
                t, incarnation=incarnation, kind="cancel", serial=3, orders=[(key, {"mode": "kill"})]
            )
    answer = await LeaseGrants(pool=pool).heartbeat(beat(incarnation, 0), [])
    (order,) = answer.updates.orders
    assert (order.kind, order.run_id, order.token, order.epoch, order.serial) == ("cancel", 5, 6, term.epoch, 3)
    await queued_orders.finish(pool, incarnation=incarnation, results={order.id: "cancelling"})
    assert (await LeaseGrants(pool=pool).heartbeat(beat(incarnation, 1), [])).updates.orders == ()


# ---------------------------------------------------------------- loops


class Probe:
    """Answers pings by address."""

    def __init__(self):
        self.asked = []
        self.answer = None

    async def ping(self, incarnation, address):
        self.asked.append(address)
        return self.answer


@pytest.fixture
async def keeper(pool, term, fake_clock, redis_url):
    link = RedisLink(client=open_client(redis_url), clock=SystemClock())
    observer = Observer(pool=pool, clock=fake_clock)
    probe = Probe()
    deps = LeaseDeps(
        pool=pool,
        clock=fake_clock,
        observer=observer,
        probe=probe,
        members=Members(link=link),
        settings=FixedSettings(),
        holds=lambda: made.held.pop() if made.held else True,
    )
    made = LeaseKeeper(deps=deps, term=term)
    # What the next looks at the term find, the last one first.
    made.probe, made.link, made.held = probe, link, []
    yield made
    await link.close()


async def watched_for(keeper, fake_clock, seconds):
    """Time passes, and the observer reads as often as in a coordinator."""
    for _ in range(round(seconds)):
        await fake_clock.advance(1.0)
        await keeper._deps.observer.run_once()


async def state_of(sql, incarnation):
    return (await sql("SELECT state FROM scheduler.executors WHERE incarnation = %s", incarnation))[0][0]


@pytest.mark.parametrize("looks", [[False], [True, False]], ids=["before the turn", "while it reads"])
@pytest.mark.parametrize("write", ["fence", "detach"])
async def test_a_leader_whose_term_does_not_hold_writes_nothing(pool, sql, keeper, fake_clock, looks, write):
    """PostgreSQL has no newer leader yet: the fence in its transactions would let it write."""
    incarnation = await register(pool)
    if write == "fence":
        await executors.attest_own(pool, incarnation, executors.STOPPED)
    else:
        [(worker_id,)] = await sql("SELECT worker_id FROM scheduler.executors")
        await keeper.link.call(lambda client: client.set(f"scheduler:detach:{worker_id}", "stop"))
    keeper.held[:] = reversed(looks)
    with pytest.raises(FencedOut):
        await keeper.run_once()
    assert await state_of(sql, incarnation) == "on"
    await fake_clock.advance(1.0)
    await keeper.run_once()
    assert await state_of(sql, incarnation) == {"fence": "off", "detach": "detached"}[write]


@pytest.mark.seed(8, 110)
async def test_a_silent_executor_is_pinged_detached_and_fenced(pool, sql, keeper, fake_clock):
    incarnation = await register(pool)
    run = await hold(sql, incarnation, "RUNNING", 71)
    await keeper.run_once()
    await watched_for(keeper, fake_clock, 10.0)
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


async def test_an_outage_is_not_followed_by_a_fence_before_a_heartbeat_had_its_chance(pool, sql, keeper, fake_clock):
    incarnation = await register(pool)
    await keeper.run_once()
    await fake_clock.advance(60.0)
    assert await keeper.run_once() == 0
    await watched_for(keeper, fake_clock, 10.0)
    assert await keeper.run_once() == 0
    await executors.grant(pool, [beat(incarnation, 0)])
    await watched_for(keeper, fake_clock, 10.0)
    assert await state_of(sql, incarnation) == "on"
    await watched_for(keeper, fake_clock, 2.0)
    assert await keeper.run_once() == 1


async def test_another_incarnation_at_its_address_is_no_answer(pool, sql, keeper, fake_clock):
    incarnation = await register(pool)
    await keeper.run_once()
    keeper.probe.answer = incarnation
    await watched_for(keeper, fake_clock, 10.0)
    for _ in range(5):
        await keeper.run_once()
        await asyncio.sleep(0.01)
    assert await state_of(sql, incarnation) == "on", "it answers: a heartbeat may be on its way"
    keeper.probe.answer = IDS.uuid()
    for _ in range(4):
        await keeper.run_once()
        await asyncio.sleep(0.01)
    assert await state_of(sql, incarnation) == "detached"


async def test_a_heartbeat_ends_the_count_of_unanswered_pings(pool, sql, keeper, fake_clock):
    incarnation = await register(pool)
    await keeper.run_once()

    async def turns(count):
        for _ in range(count):
            await keeper.run_once()
            await asyncio.sleep(0.01)

    for echo in range(2):
        await watched_for(keeper, fake_clock, 10.0)
        await turns(3)
        assert await state_of(sql, incarnation) == "on", (
            "two or three pings have not been answered, and none is asked about yet"
        )
        await executors.grant(pool, [beat(incarnation, echo)])
        await turns(1)
    await watched_for(keeper, fake_clock, 10.0)
    await turns(4)
    assert await state_of(sql, incarnation) == "detached"


async def test_a_stand_still_counts_from_the_return_of_the_read(pool, keeper, fake_clock, monkeypatch):
    """Whatever was granted while the read was on its way is not in it."""
    incarnation = await register(pool)
    observe = executors.observe

    async def slow(pool):
        rows = await observe(pool)
        await fake_clock.advance(9.0)
        return rows

    monkeypatch.setattr(executors, "observe", slow)
    await keeper.run_once()
    assert keeper._deps.observer.watched[incarnation].sighting.since == fake_clock.boottime()


@pytest.mark.seed(108)
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
    await executors.attest_own(pool, young, executors.STOPPED)
    assert await keeper.run_once() == 1 and await state_of(sql, young) == "off"


@pytest.mark.seed(70, 119)
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


async def test_a_leader_that_was_replaced_fences_no_executor(pool, sql, keeper, term, fake_clock):
    incarnation = await register(pool)
    await keeper.run_once()
    await watched_for(keeper, fake_clock, 11.0)
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=98, address="b:1", node_id="n1")
    assert await leader.take_over(pool, me, observed=term.epoch, beat=1)
    with pytest.raises(FencedOut):
        await keeper.run_once()
    assert await state_of(sql, incarnation) == "on"
