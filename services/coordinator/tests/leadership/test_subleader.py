"""The sub-leader: who it is, also without Redis, and that it can depose a leader that beats and does not tick (docs/fencing.md 3.4)."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from toban_coordinator.leadership import Presence, PresenceDeps
from toban_coordinator.leadership.subleader import Checker
from toban_domain.errors import ErrorCode, TobanError
from toban_fencing.redis_client import RedisLink, open_client
from toban_fencing.redis_locks import SubleaderLock
from toban_fencing.worker_registry import Members
from toban_runtime.clock import SystemClock
from toban_testing.fake_coordinator import FixedSettings
from toban_testing.waiting import until

CLOCK = SystemClock()
NO_REDIS = "redis://127.0.0.1:1/0"


class Mirror:
    skew_seconds = 0.0

    def put(self, worker_id, fields):
        pass


def presence(node):
    lock = SubleaderLock(link=node.link, node_id=node.leadership.me.node_id, worker_id=node.leadership.me.worker_id)
    deps = PresenceDeps(pool=node.pool, clock=CLOCK, mirror=Mirror(), subleader=lock, server_time=Mirror(), release="1")
    return Presence(deps=deps, leadership=node.leadership)


async def roles(nodes):
    """What each is after all have seen each other; in the order of `nodes`."""
    made = [presence(node) for node in nodes]
    for _ in range(3):
        for one in made:
            await one.run_once()
    return [node.leadership.view().role for node in nodes]


async def led(cluster, *node_ids, redis_url):
    """Coordinators on these nodes; the first one leads, and the others know."""
    first = await cluster(redis_url=redis_url, node_id=node_ids[0])
    await until(lambda: first.leads)
    rest = [await cluster(redis_url=redis_url, node_id=node_id) for node_id in node_ids[1:]]
    await until(lambda: all(node.epoch == first.epoch for node in rest))
    return [first, *rest]


@pytest.mark.seed(27, 104)
@pytest.mark.parametrize("with_redis", [True, False], ids=["redis", "no redis"])
@pytest.mark.parametrize(
    ("node_ids", "expected"),
    [
        (["a", "a"], ["leader", "subleader"]),
        (["a", "a", "b"], ["leader", "standby", "subleader"]),
        (["a", "b", "b", "c"], ["leader", "subleader", "standby", "subleader"]),
    ],
)
async def test_each_node_has_one_and_the_leaders_own_only_when_it_is_alone(
    cluster, redis_url, with_redis, node_ids, expected
):
    nodes = await led(cluster, *node_ids, redis_url=redis_url if with_redis else NO_REDIS)
    assert await roles(nodes) == expected


async def test_no_coordinator_is_sub_leader_before_it_has_seen_who_else_is_there(cluster):
    _, second = await led(cluster, "a", "b", redis_url=NO_REDIS)
    mine = presence(second)
    await mine.run_once()
    assert second.leadership.view().role == "standby"
    await mine.run_once()
    assert second.leadership.view().role == "subleader"


@pytest.mark.seed(69)
async def test_the_lock_in_redis_shows_the_sub_leader_and_decides_nothing(cluster, redis_url):
    _, second = await led(cluster, "a", "b", redis_url=redis_url)
    key = "scheduler:subleader:b:lock"
    await second.link.call(lambda client: client.set(key, "nonsense"))
    mine = presence(second)
    for _ in range(2):
        await mine.run_once()
    assert second.leadership.view().role == "subleader"
    await second.link.call(lambda client: client.delete(key))
    await mine.run_once()
    assert await second.link.call(lambda client: client.get(key)) == str(second.leadership.me.worker_id)


class Stuck:
    """A leader that answers and says that it does not tick."""

    def __init__(self, leader):
        self._leader = leader

    async def status(self, address):
        return SimpleNamespace(ticking=False, epoch=self._leader.epoch)


class Later:
    """PostgreSQL's clock, a minute on: each tick is stale."""

    def __init__(self, clock):
        self._clock = clock

    def now(self):
        return self._clock.now() + timedelta(minutes=1)


def checker(node, leader, *, link=None):
    return Checker(
        pool=node.pool,
        leadership=node.leadership,
        peers=Stuck(leader),
        members=Members(link=link or node.link),
        now=Later(node.server_time),
        settings=FixedSettings(leader_stale_seconds=5.0),
    )


async def stuck_pair(cluster, redis_url):
    first, second = await led(cluster, "a", "b", redis_url=redis_url)
    second.leadership.set_standby_role("subleader")
    await until(lambda: second.leadership.view().last_tick_at is not None)
    return first, second


@pytest.mark.seed(4)
async def test_a_leader_that_beats_and_does_not_tick_is_deposed_without_redis(cluster):
    first, second = await stuck_pair(cluster, NO_REDIS)
    epoch = first.epoch
    await checker(second, first).run_once()
    await until(lambda: second.leads or first.epoch > epoch)
    assert max(first.epoch, second.epoch) > epoch


@pytest.mark.seed(107)
async def test_when_the_flag_in_redis_did_not_help_postgresql_is_asked(cluster, redis_url):
    """The leader may be the one that is cut off from Redis."""
    first, second = await led(cluster, "a", "b", redis_url=NO_REDIS)
    second.leadership.set_standby_role("subleader")
    await until(lambda: second.leadership.view().last_tick_at is not None)
    link = RedisLink(client=open_client(redis_url), clock=CLOCK)
    asking, epoch = checker(second, first, link=link), first.epoch
    await asking.run_once()
    beat = second.leadership.view().beat
    await until(lambda: second.leadership.view().beat > beat + 2)
    assert first.leads and first.epoch == epoch, "the flag alone, where the leader cannot see it"
    await asking.run_once()
    await until(lambda: second.leads or first.epoch > epoch)
    await link.close()


async def test_without_redis_and_postgresql_the_check_fails_by_name(cluster, monkeypatch):
    first, second = await stuck_pair(cluster, NO_REDIS)

    async def gone(*_args):
        raise TobanError(ErrorCode.UNAVAILABLE, "PostgreSQL is away")

    monkeypatch.setattr("toban_coordinator.leadership.subleader.leader.demote", gone)
    with pytest.raises(TobanError, match="PostgreSQL is away"):
        await checker(second, first).run_once()
