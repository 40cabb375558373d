"""A value in Redis' leader lock that no leader wrote: it deposes nobody, and keeps nobody from leading (docs/fencing.md 3.1)."""

import asyncio

import pytest
import redis.asyncio
from structlog.testing import capture_logs

from toban_fencing.election_types import Timings
from toban_fencing.redis_locks import LOCK_KEY
from toban_observability import metrics
from toban_testing.waiting import until, until_async

POISON = f"{9 * 10**18}:999"
# What this machine may take to answer: the tests are about what the answers lead to.
PATIENT = Timings(confirm=20.0, commit_stale=20.0, renew_stale=20.0)


async def until_lock(client, node):
    mine = f"{node.epoch}:{node.leadership.me.worker_id}"
    await until_async(lambda: client.get(LOCK_KEY), lambda found: found == mine)


def conflicts():
    return sum(value for _, value in metrics.samples("toban_leader_lock_conflicts_total"))


@pytest.fixture
async def client(redis_url):
    async with redis.asyncio.from_url(redis_url, decode_responses=True) as opened:
        yield opened


@pytest.mark.parametrize("ttl", [None, 60_000], ids=["for ever", "with a TTL"])
async def test_a_poisoned_lock_changes_no_leader_and_is_overwritten_with_an_alert(cluster, client, ttl):
    first = await cluster(timings=PATIENT)
    await until(lambda: first.leads)
    second = await cluster()
    await until_lock(client, first)
    epoch, before = first.epoch, conflicts()
    with capture_logs() as lines:
        await client.set(LOCK_KEY, POISON, px=ttl)
        await until_lock(client, first)
    assert (first.leads, first.epoch, second.leads) == (True, epoch, False)
    assert conflicts() == before + 1
    [line] = [line for line in lines if line["log_level"] == "error" and "owner" in line]
    assert (line["owner"], line["epoch"]) == (POISON, epoch)


async def test_another_installation_that_renews_its_own_lock_changes_no_leader(cluster, client):
    first = await cluster(timings=PATIENT)
    await until(lambda: first.leads)
    second = await cluster()
    epoch, before = first.epoch, conflicts()
    with capture_logs() as lines:
        async with asyncio.timeout(60):
            while conflicts() < before + 5:
                await client.set(LOCK_KEY, POISON, px=2000)
                await asyncio.sleep(0.1)
    assert (first.leads, first.epoch, second.leads) == (True, epoch, False)
    assert len([line for line in lines if line["log_level"] == "error"]) == 1, "one line, however often"


async def test_a_poisoned_lock_keeps_no_candidate_from_leading_after_a_crash(cluster, client):
    first = await cluster()
    await until(lambda: first.leads)
    second = await cluster(timings=PATIENT)
    await until(lambda: second.epoch == first.epoch)
    await first.die()
    await client.set(LOCK_KEY, POISON)
    await until(lambda: second.leads)
    assert second.epoch > first.epoch
    await until_lock(client, second)
