"""What a coordinator does when it has reason to doubt itself: its epoch, its clock, its own code (docs/fencing.md 3.1, 3.2, 3.12)."""

import asyncio
from dataclasses import replace

import pytest

from toban_coordinator.leadership import Presence, PresenceDeps
from toban_coordinator.store.cluster import leader
from toban_domain.epoch import Epoch, generation_above
from toban_fencing.election_types import LockOutcome, Overwrite, Timings
from toban_fencing.redis_locks import LeaderLock
from toban_runtime.clock import SystemClock
from toban_store.tx import autocommit, tx
from toban_testing.waiting import until

CLOCK = SystemClock()


async def seconds_until(condition):
    start = asyncio.get_running_loop().time()
    await until(condition)
    return asyncio.get_running_loop().time() - start


async def test_a_raised_row_ends_the_term_and_the_next_one_waits_for_a_lease(cluster):
    """PostgreSQL lost commits: whoever leads is fenced at once, and the next leader of a new generation does nothing for a lease."""
    node = await cluster()
    await until(lambda: node.terms)
    epoch = node.epoch
    async with tx(node.pool) as t:
        assert await leader.raise_epoch(t, observed=epoch, epoch=generation_above(epoch))
        assert not await leader.raise_epoch(t, observed=epoch, epoch=generation_above(epoch)), "the row has moved on"
    await until(lambda: node.leads and node.epoch > epoch)
    assert Epoch.unpack(node.epoch) == Epoch(Epoch.unpack(epoch).generation + 1, 1)
    assert not node.leadership.view().settled
    assert len(node.terms) == 1, "no loop runs before the cluster is settled"


async def test_a_beat_in_another_database_of_the_server_ends_the_term(cluster, monkeypatch):
    """A dump restored beside the original and renamed in its place has the same server, timeline, and perhaps epoch."""
    node = await cluster()
    await until(lambda: node.leads)
    epoch, beat = node.epoch, leader.beat

    async def elsewhere(*args, **kwargs):
        beaten = await beat(*args, **kwargs)
        return beaten and replace(beaten, database=beaten.database + (args[1] == epoch))

    monkeypatch.setattr(leader, "beat", elsewhere)
    await until(lambda: node.leads and node.epoch > epoch)


async def test_who_gives_way_stops_and_stands_no_more_until_told(cluster, at_most):
    first = await cluster()
    await until(lambda: first.leads)
    first.leadership.yield_leadership(True)
    await until(lambda: not first.leads)
    await asyncio.sleep(2.5)
    assert not first.leads
    second = await cluster()
    assert await seconds_until(lambda: second.leads) < at_most(1.0)
    await second.die()
    await asyncio.sleep(1.5)
    assert not first.leads
    first.leadership.yield_leadership(False)
    assert await seconds_until(lambda: first.leads) < at_most(1.5)


async def test_a_beat_that_another_server_took_ends_the_term(cluster, monkeypatch, at_most):
    """After a fail-over the row of the new server may have this epoch as well: what it lost, nobody knows."""
    node = await cluster()
    await until(lambda: node.leads)
    epoch, beat = node.epoch, leader.beat

    async def elsewhere(*args, **kwargs):
        beaten = await beat(*args, **kwargs)
        return beaten and replace(beaten, timeline=beaten.timeline + (args[1] == epoch))

    monkeypatch.setattr(leader, "beat", elsewhere)
    assert await seconds_until(lambda: not node.leads) < at_most(1.0)
    await until(lambda: node.leads)
    assert node.epoch > epoch


def broken(times):
    """Fails in a way that nobody expects, so many times; then works as before."""
    left = [times]

    def wrap(real):
        async def call(*args, **kwargs):
            if left[0]:
                left[0] -= 1
                raise RuntimeError("nobody expected this")
            return await real(*args, **kwargs)

        return call

    return wrap


@pytest.mark.parametrize("part", ["read_row", "take_over"])
async def test_an_unexpected_error_ends_no_elector(cluster, monkeypatch, part, at_most):
    monkeypatch.setattr(leader, part, broken(3)(getattr(leader, part)))
    node = await cluster()
    assert await seconds_until(lambda: node.leads) < at_most(3.0)


async def test_an_unexpected_error_of_redis_counts_as_unreachable(cluster, monkeypatch, at_most):
    first = await cluster()
    await until(lambda: first.leads)
    monkeypatch.setattr(LeaderLock, "renew", broken(4)(LeaderLock.renew))
    monkeypatch.setattr(LeaderLock, "try_lock", broken(2)(LeaderLock.try_lock))
    second = await cluster()
    await asyncio.sleep(2.0)
    assert first.leads
    await first.die()
    assert await seconds_until(lambda: second.leads) < at_most(6.0)
    renewal = await second.thread.run(second.lock.renew(second.epoch, overwrite=Overwrite.OLDER))
    assert renewal.outcome is LockOutcome.HELD


class Outside:
    """Mirror, sub-leader's lock and PostgreSQL's clock of a presence: only the skew counts here."""

    skew_seconds = 0.0

    def put(self, worker_id, fields):
        pass

    async def hold(self):
        return False

    async def release(self):
        pass


async def present(node, **more):
    outside = Outside()
    fields = {"mirror": outside, "subleader": outside, "server_time": outside, "release": "1", **more}
    made = Presence(deps=PresenceDeps(pool=node.pool, clock=CLOCK, **fields), leadership=node.leadership)
    await made.introduce()
    return outside, made


async def test_one_that_slept_until_its_row_was_forgotten_is_seen_again_and_one_that_stopped_is_not(cluster):
    node = await cluster()
    await until(lambda: node.leads)
    _, mine = await present(node)
    rows = "SELECT incarnation::text AS i, worker_id, node_id, address, pid > 0 AS pid, version, role, status FROM scheduler.coordinators"
    async with autocommit(node.pool) as t:
        [before] = await t.fetch_all(rows)
        await t.execute("DELETE FROM scheduler.coordinators")
    await mine.run_once()
    async with autocommit(node.pool) as t:
        assert await t.fetch_all(rows) == [{**before, "role": "leader"}]
    await mine.leave()
    await mine.run_once()
    async with autocommit(node.pool) as t:
        assert await t.fetch_all(rows) == [{**before, "role": "standby", "status": "stopped"}]


async def test_presence_tells_the_version_of_the_settings(cluster):
    """So a change is found whose notification was lost."""
    node, versions = await cluster(), []
    await until(lambda: node.leads)
    _, mine = await present(node, on_settings=versions.append)
    await mine.run_once()
    async with autocommit(node.pool) as t:
        await t.execute("INSERT INTO scheduler.settings (name, value) VALUES ('leader_tick_seconds', '2')")
    await mine.run_once()
    assert versions[1] == versions[0] + 1


async def test_a_leader_whose_clock_is_off_leads_on_alone_and_gives_way_to_a_better_one(cluster, at_most):
    # A leader that a busy machine delays stays one: its clock alone makes it give way.
    patient = Timings(renew_stale=60.0, commit_stale=60.0, lock_ttl=60.0)
    first = await cluster(timings=patient)
    await until(lambda: first.leads)
    second = await cluster(timings=patient)
    (one, mine), (two, theirs) = await present(first), await present(second)
    one.skew_seconds = 2.5
    await mine.run_once()
    # The other one has not said how its clock goes; then it is off as well.
    assert first.leads
    two.skew_seconds = -60.0
    await theirs.run_once()
    await mine.run_once()
    assert first.leads
    two.skew_seconds = 0.4
    await theirs.run_once()
    await mine.run_once()
    await until(lambda: not first.leads)
    assert await seconds_until(lambda: second.leads) < at_most(1.0)
    await theirs.run_once()
    assert second.leads
