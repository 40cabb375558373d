"""Locks, mirror and flags over a real Redis."""

import asyncio
from urllib.parse import urlsplit

import pytest
from redis.asyncio.client import Pipeline

from toban_domain.errors import TobanError
from toban_fencing.election_types import LockOutcome, Overwrite
from toban_fencing.redis_client import CALL_SECONDS, RedisGone, RedisLink, open_client
from toban_fencing.redis_info import inspect
from toban_fencing.redis_locks import EPOCH_KEY, LOCK_KEY, LeaderLock, Renewal, SubleaderLock
from toban_fencing.worker_registry import DEGRADE_TTL_MS, SEQUENCE_KEY, Members, RunLeases, worker_key
from toban_runtime.clock import SystemClock
from toban_testing.proxy import FaultProxy

HELD, FOREIGN, UNREACHABLE = LockOutcome.HELD, LockOutcome.FOREIGN, LockOutcome.UNREACHABLE
OLDER, CANDIDATE, ANY = Overwrite.OLDER, Overwrite.CANDIDATE, Overwrite.ANY
# Beyond 2^53, where doubles repeat.
EPOCH = (5 << 51) | (7 << 27)
CLOCK = SystemClock()


@pytest.fixture
async def link(redis_url, patient):
    made = RedisLink(client=open_client(redis_url), clock=CLOCK)
    yield made
    await made.close()


@pytest.fixture
def locks(link):
    return [LeaderLock(link=link, worker_id=number) for number in (1, 2)]


async def owner(link):
    return await link.call(lambda client: client.get(LOCK_KEY))


@pytest.mark.parametrize(("text", "epoch"), [(str(EPOCH), EPOCH), ("9" * 5000, 0), ("x", 0), (None, 0)])
async def test_an_epoch_that_is_none_is_no_epoch(link, text, epoch):
    if text is not None:
        await link.call(lambda client: client.set(EPOCH_KEY, text))
    assert (await inspect(link)).epoch == epoch


@pytest.mark.seed(28, 176)
async def test_one_candidate_gets_the_lock(locks, link):
    assert [await lock.try_lock() for lock in locks] == [HELD, FOREIGN]
    assert await locks[0].try_lock() is HELD
    await locks[1].release(0)
    assert await owner(link) == "0:1"
    await locks[0].release(0)
    assert await owner(link) is None


async def test_a_renewal_sets_a_missing_lock_again(locks, link):
    assert (await locks[0].renew(EPOCH, overwrite=OLDER)).outcome is HELD
    assert await owner(link) == f"{EPOCH}:1"
    assert 0 < await link.call(lambda client: client.pttl(LOCK_KEY)) <= 2000


@pytest.mark.seed(81)
@pytest.mark.parametrize(
    ("there", "overwrite", "outcome"),
    [
        (EPOCH - 1, OLDER, HELD),
        (EPOCH + 1, OLDER, FOREIGN),
        (EPOCH + 1, CANDIDATE, FOREIGN),
        (EPOCH * 16, CANDIDATE, FOREIGN),
        (EPOCH * 16, ANY, HELD),
        (9, OLDER, HELD),
        (0, OLDER, FOREIGN),
        (0, CANDIDATE, HELD),
    ],
)
async def test_whose_lock_is_overwritten(locks, link, there, overwrite, outcome):
    await link.call(lambda client: client.set(LOCK_KEY, f"{there}:2"))
    renewal = await locks[0].renew(EPOCH, overwrite=overwrite)
    assert (renewal.outcome, renewal.owner) == (outcome, f"{there}:2" if outcome is FOREIGN else "")
    assert await owner(link) == (f"{EPOCH}:1" if outcome is HELD else f"{there}:2")


@pytest.mark.parametrize(
    ("there", "shown"), [("", ""), (b"\xff\x00:1", "??:1"), ("9" * 5000, "9" * 64), (["x"], "a key of another type")]
)
async def test_nonsense_in_the_lock_is_a_foreign_owner_that_can_be_overwritten(locks, link, there, shown):
    def poison(client):
        return client.rpush(LOCK_KEY, *there) if isinstance(there, list) else client.set(LOCK_KEY, there)

    await link.call(poison)
    assert await locks[0].try_lock() is FOREIGN
    assert await locks[0].renew(EPOCH, overwrite=OLDER) == Renewal(FOREIGN, owner=shown)
    assert (await locks[0].renew(EPOCH, overwrite=ANY)).outcome is HELD
    assert await owner(link) == f"{EPOCH}:1"


async def test_the_epoch_is_only_ever_raised(locks, link):
    for epoch, expected in ((EPOCH, EPOCH), (EPOCH + 1, EPOCH + 1), (EPOCH, EPOCH + 1), (999, EPOCH + 1)):
        await locks[0].renew(epoch, overwrite=CANDIDATE)
        assert await link.call(lambda client: client.get(EPOCH_KEY)) == str(expected)


@pytest.mark.seed(69)
async def test_one_subleader_a_node(link):
    one, two, far = (
        SubleaderLock(link=link, node_id=node, worker_id=number) for number, node in enumerate(("a", "a", "b"))
    )
    assert [await one.hold(), await two.hold(), await far.hold(), await one.hold()] == [True, False, True, True]
    await one.release()
    assert await two.hold()


@pytest.mark.seed(67)
async def test_members(link):
    members = Members(link=link)
    await members.write({7: {"role": "worker"}, 8: {"role": "leader"}}, ttl_seconds=5, now=1000.0, newest_id=8)
    assert await members.read(7) == {"role": "worker"}
    assert 0 < await link.call(lambda client: client.pttl(worker_key(8))) <= 5000
    await link.call(lambda client: client.set("scheduler:detach:7", "stop"))
    assert await members.detach_flags([7, 8]) == {7: "stop"}
    await members.clear_detach(7)
    assert await members.detach_flags([7, 8]) == {}
    await members.remove(7)
    assert await members.read(7) == {}


@pytest.mark.seed(71)
@pytest.mark.parametrize("nonsense", ["", "x", "-5", "1.5", "9" * 20, "9" * 5000])
async def test_a_renewal_brings_the_degrade_flag_and_survives_nonsense_there(locks, link, nonsense):
    members = Members(link=link)
    assert (await locks[0].renew(EPOCH, overwrite=CANDIDATE)).degrade is None
    await members.set_degrade(1, EPOCH)
    assert (await locks[0].renew(EPOCH, overwrite=CANDIDATE)).degrade == EPOCH
    await members.clear_degrade(1)
    assert (await locks[0].renew(EPOCH, overwrite=CANDIDATE)).degrade is None
    await link.call(lambda client: client.hset(worker_key(1), "degrade_leader", nonsense))
    assert await locks[0].renew(EPOCH, overwrite=CANDIDATE) == Renewal(HELD)


async def test_a_degrade_flag_keeps_no_hash_of_a_leader_that_is_gone(link):
    members = Members(link=link)
    await members.set_degrade(1, EPOCH)
    assert 0 < await link.call(lambda client: client.pttl(worker_key(1))) <= DEGRADE_TTL_MS
    await members.write({2: {"role": "leader"}}, ttl_seconds=5, now=1000.0, newest_id=2)
    await members.set_degrade(2, EPOCH)
    assert 0 < await link.call(lambda client: client.pttl(worker_key(2))) <= 5000, "it does not outlive its time"


@pytest.mark.seed(66)
async def test_the_sequence_of_worker_ids_follows_the_newest_and_is_never_lowered(link):
    members = Members(link=link)
    for newest, expected in ((7, "7"), (12, "12"), (9, "12")):
        await members.write({newest: {"role": "worker"}}, ttl_seconds=5, now=1000.0, newest_id=newest)
        assert await link.call(lambda client: client.get(SEQUENCE_KEY)) == expected
    await link.call(lambda client: client.delete(SEQUENCE_KEY))
    await link.call(lambda client: client.rpush(SEQUENCE_KEY, "nonsense"))
    await members.write({3: {"role": "worker"}}, ttl_seconds=5, now=1000.0, newest_id=12)
    assert await link.call(lambda client: client.get(SEQUENCE_KEY)) == "12"
    assert link.up


async def test_marks_of_runs_yield_to_a_higher_epoch(link):
    leases = RunLeases(link=link)
    assert await leases.take([1, 2], EPOCH) == {1, 2}
    assert await leases.take([1], EPOCH + 1) == {1}
    assert await leases.take([1, 2, 3], EPOCH) == {2, 3}
    assert await leases.take([], EPOCH) == frozenset()


async def test_a_batch_of_marks_is_one_call_of_the_script(link, monkeypatch):
    """The leader marks every batch that it places."""
    calls = []
    single = Pipeline.eval

    def counted(pipe, *arguments):
        calls.append(arguments[1])
        return single(pipe, *arguments)

    monkeypatch.setattr(Pipeline, "eval", counted)
    assert await RunLeases(link=link).take(range(1, 41), EPOCH) == frozenset(range(1, 41))
    assert calls == [40]


@pytest.mark.parametrize("fault", ["cut", "freeze"])
async def test_a_lost_redis_costs_a_bounded_wait_once(redis_url, fault, fake_clock, at_most):
    parts = urlsplit(redis_url)
    async with FaultProxy(host=parts.hostname, port=parts.port) as proxy:
        # Its clock stands still: no time for the next try comes.
        link = RedisLink(
            client=open_client(redis_url.replace(f"{parts.hostname}:{parts.port}", proxy.address)), clock=fake_clock
        )
        lock = LeaderLock(link=link, worker_id=1)
        assert await lock.try_lock() is HELD
        if fault == "cut":
            await proxy.cut()
        else:
            proxy.freeze()
        start = CLOCK.monotonic()
        assert await lock.try_lock() is UNREACHABLE
        assert CLOCK.monotonic() - start < at_most(CALL_SECONDS + 0.2)
        took, asked = [], []

        def ask(client):
            asked.append(client)
            return client.get("x")

        for _ in range(3):
            start = CLOCK.monotonic()
            with pytest.raises(RedisGone):
                await link.call(ask)
            took.append(CLOCK.monotonic() - start)
        assert asked == []
        assert min(took) < at_most(0.05), "a call that asks Redis again waits for it"
        proxy.heal()
        async with asyncio.timeout(60):
            while await lock.try_lock() is not HELD:
                await fake_clock.advance(1)
        assert link.up
        await link.close()


@pytest.mark.parametrize(
    "url", ["redis://h:1/0", "rediss://h", "redis+sentinel://:pw@a:1,b/mymaster/2", "redis+cluster://a:1,b:2"]
)
async def test_urls(url):
    client = open_client(url)
    await client.aclose()


@pytest.mark.parametrize("url", ["http://h", "redis+sentinel://a:1", "redis+x://a", "redis+cluster://a:b"])
def test_urls_that_are_wrong(url):
    with pytest.raises(TobanError):
        open_client(url)
