"""A hand-over that an operator asks for: from any coordinator, with and without Redis, and only for the epoch that was seen."""

import asyncio
import json

import pytest

from toban_coordinator.app.cluster.operations_leader import LeaderOperations
from toban_coordinator.leadership import election_runner
from toban_coordinator.store.cluster import audit, leader
from toban_domain.epoch import Epoch
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import SystemClock
from toban_store.tx import autocommit
from toban_testing.waiting import until

CLOCK = SystemClock()
NO_REDIS = "redis://127.0.0.1:1/0"


def desk_of(node) -> LeaderOperations:
    return LeaderOperations(pool=node.pool, leader=node.leadership, clock=CLOCK)


def demote(node, epoch):
    return desk_of(node).demote(epoch, reason="patching", actor="admin-cli")


async def leads(*nodes):
    """The node that leads."""
    return (await until(lambda: [node for node in nodes if node.leads]))[0]


async def actions(node):
    async with autocommit(node.pool) as t:
        return await audit.page(t, audit.AuditFilter(), start=1 << 40, limit=10)


@pytest.mark.seed(119)
@pytest.mark.parametrize("asked", ["leader", "standby"])
@pytest.mark.parametrize("redis", ["with", "without"])
async def test_the_other_one_leads_at_once(cluster, redis_url, asked, redis, at_most):
    url = redis_url if redis == "with" else NO_REDIS
    nodes = [await cluster(redis_url=url), await cluster(redis_url=url)]
    first = await leads(*nodes)
    [second] = [node for node in nodes if node is not first]
    await asyncio.sleep(0.5)
    epoch, begun = first.epoch, CLOCK.monotonic()
    answer = await demote(first if asked == "leader" else second, epoch)
    took = CLOCK.monotonic() - begun
    assert second.leads and not first.leads
    assert answer.epoch == second.epoch > epoch
    assert (answer.worker_id, answer.address) == (
        second.leadership.me.worker_id,
        second.leadership.me.address,
    )
    assert took < at_most(3.0), "no wait for a beat that stands still"
    [entry] = await actions(first)
    assert (entry["action"], entry["target"], entry["reason"]) == ("demote", f"leader of epoch {epoch}", "patching")
    assert json.loads(entry["before"])["worker_id"] == first.leadership.me.worker_id


async def test_every_beat_of_a_demoted_leader_says_so_and_one_hand_over_begins(cluster, monkeypatch):
    monkeypatch.setattr(election_runner, "HAND_OVER_SECONDS", 2.0)
    only = await cluster()
    await leads(only)
    epoch, begun, ended, owner = only.epoch, [], asyncio.Event(), only.leadership._runner._owner

    async def slow(epoch):
        begun.append(epoch)
        await ended.wait()

    # Used in the election's thread; the term ends although this hangs.
    monkeypatch.setattr(owner, "finish", slow)
    await demote(only, epoch)
    only.thread.post(ended.set)
    assert begun == [epoch]


async def test_alone_the_same_one_leads_again_in_a_new_term(cluster):
    only = await cluster()
    await leads(only)
    epoch = only.epoch
    answer = await demote(only, epoch)
    assert answer.epoch == only.epoch > epoch
    assert answer.worker_id == only.leadership.me.worker_id


async def test_another_epoch_than_the_operator_saw_is_refused(cluster):
    only = await cluster()
    await leads(only)
    epoch = only.epoch
    with pytest.raises(TobanError, match=f"epoch {epoch} leads, not {epoch - 1}") as caught:
        await demote(only, epoch - 1)
    assert (caught.value.code, caught.value.detail) == (ErrorCode.CONFLICT, {"epoch": epoch})
    with pytest.raises(TobanError, match="epoch is missing"):
        await demote(only, 0)
    await asyncio.sleep(0.7)
    assert only.leads and only.epoch == epoch, "it beats on"
    assert await actions(only) == []


async def test_without_a_leader_there_is_none_to_demote(cluster):
    only = await cluster()
    await leads(only)
    epoch = only.epoch
    await only.leadership.leave()
    with pytest.raises(TobanError, match="no coordinator leads") as caught:
        await demote(only, epoch)
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE


async def test_an_order_for_an_older_term_is_void(cluster):
    """The order names its epoch, so the next leader never obeys it."""
    only = await cluster()
    await leads(only)
    async with autocommit(only.pool) as t:
        assert await leader.demote(t, only.epoch)
        assert not await leader.demote(t, only.epoch + 1)
    old = only.epoch
    await until(lambda: only.epoch != old and only.leads)
    new = only.epoch
    await asyncio.sleep(1.0)
    assert only.leads and only.epoch == new


async def test_an_adopted_epoch_is_stepped_over_and_audited(cluster):
    node = await cluster()
    await leads(node)
    before, claimed = node.epoch, Epoch.unpack(node.epoch).generation + 3 << 51 | 5
    adopted = await desk_of(node).adopt_epoch(claimed, reason="restored", actor="admin-cli")
    assert (adopted.before, adopted.generations_consumed) == (before, 4)
    await until(lambda: node.leads and node.epoch > claimed)
    [entry] = await actions(node)
    assert (entry["actor"], entry["action"], entry["reason"]) == ("admin-cli", "adopt_epoch", "restored")


async def test_an_epoch_is_adopted_without_a_leader(pool):
    """There is no coordinator at all: PostgreSQL is enough."""
    adopted = await LeaderOperations(pool=pool, leader=None, clock=CLOCK).adopt_epoch(9 << 51, reason="", actor="x")
    assert (adopted.before, Epoch.unpack(adopted.after)) == (0, Epoch(10, 0))


@pytest.mark.parametrize(
    ("epoch", "code", "text"),
    [
        (0, ErrorCode.INVALID_ARGUMENT, "not an epoch"),
        (1 << 63, ErrorCode.INVALID_ARGUMENT, "not an epoch"),
        (Epoch(2, 1).pack(), ErrorCode.RESOURCE_INVALID_STATE, "nothing to adopt"),
        (Epoch(4095, 1).pack(), ErrorCode.RESOURCE_INVALID_STATE, "use them up"),
        (Epoch(4031, 1).pack(), ErrorCode.RESOURCE_INVALID_STATE, "new state directory"),
    ],
)
async def test_an_epoch_that_is_not_needed_or_uses_them_up_is_not_adopted(pool, sql, epoch, code, text):
    await sql("UPDATE scheduler.leader SET epoch = %s", Epoch(2, 1).pack())
    with pytest.raises(TobanError, match=text) as caught:
        await LeaderOperations(pool=pool, leader=None, clock=CLOCK).adopt_epoch(epoch, reason="", actor="x")
    assert caught.value.code is code
    assert await sql("SELECT epoch FROM scheduler.leader") == [(Epoch(2, 1).pack(),)]
