"""A main loop that is busy, or stands still: the election's thread keeps the term, and what does not tick is found (docs/fencing.md 3.1, 3.4)."""

import asyncio
import threading
from datetime import timedelta

import pytest

from toban_coordinator.decide.cluster.leader_health import LeaderSigns, is_suspect
from toban_coordinator.leadership.term_hold import TermHold
from toban_fencing.election_types import Timings
from toban_runtime.clock import SystemClock
from toban_store.tx import autocommit
from toban_testing.waiting import until

CLOCK = SystemClock()
# What this machine may take to answer; the main loop is busy for longer.
ROOMY = Timings(commit_stale=2.5, renew_stale=2.5)
BEAT = "SELECT epoch, beat, last_tick_at, clock_timestamp() AS now FROM scheduler.leader_beat"


async def beat_of(node):
    async with autocommit(node.pool) as t:
        return await t.fetch_one(BEAT)


def compute(seconds):
    """Keeps the interpreter busy, as a long computation in a turn does."""
    end = CLOCK.monotonic() + seconds
    while CLOCK.monotonic() < end:
        sum(range(1000))


def stand_still(seconds):
    """Keeps the event loop of this thread waiting."""
    threading.Event().wait(seconds)


@pytest.mark.parametrize(
    "block", [stand_still, pytest.param(compute, marks=pytest.mark.long)], ids=["stands still", "computes"]
)
async def test_a_main_loop_that_is_busy_for_seconds_loses_no_term(cluster, block):
    first = await cluster(timings=ROOMY)
    await until(lambda: first.terms)
    before = await beat_of(first)
    block(4.0)
    after = await beat_of(first)
    assert after["epoch"] == before["epoch"]
    assert after["beat"] > before["beat"] + 3
    assert first.leads and first.epoch == before["epoch"], "it is a leader at once when the loop goes on"
    await asyncio.sleep(0.5)
    assert first.leads and len(first.terms) == 1


async def test_a_main_loop_that_stands_still_shows_no_tick(cluster):
    """What the sub-leader looks at: the beat goes on, the time of the last tick does not."""
    node = await cluster()
    await until(lambda: node.terms)
    # Longer than a beat, so that the last tick before is shown.
    await asyncio.sleep(0.7)
    stand_still(2.0)
    row = await beat_of(node)
    still = row["now"] - row["last_tick_at"]
    assert still > timedelta(seconds=1.5)
    signs = LeaderSigns(last_tick_at=row["last_tick_at"], beat_still_seconds=0.0, ticking=None)
    assert is_suspect(signs, now=row["now"], stale_seconds=1.5)


async def test_a_leader_that_never_ticks_shows_the_time_of_its_take_over(cluster, monkeypatch):
    monkeypatch.setattr("toban_coordinator.leadership.term.RunningTerm._run", lambda _self: asyncio.sleep(3600))
    node = await cluster()
    await until(lambda: node.leads)
    begun = await beat_of(node)
    await asyncio.sleep(1.0)
    row = await beat_of(node)
    assert row["beat"] > begun["beat"]
    assert row["now"] - row["last_tick_at"] > timedelta(seconds=0.9)


async def test_a_demotion_does_not_wait_for_a_main_loop_that_hangs(cluster):
    node, other = await cluster(), await cluster()
    await until(lambda: node.leads or other.leads)
    leader, standby = (node, other) if node.leads else (other, node)
    epoch = leader.epoch
    async with autocommit(leader.pool) as t:
        await t.execute("UPDATE scheduler.leader_beat SET demote_epoch = epoch")
    leader.leadership.finish_term = lambda _epoch: asyncio.sleep(3600)
    await until(lambda: max(leader.epoch, standby.epoch) > epoch)


async def test_an_election_thread_that_stands_still_ends_the_term_in_the_main_loop(cluster):
    """Neither beats nor renewals go out, so another one takes over; nothing here may act as leader meanwhile."""
    node = await cluster()
    await until(lambda: node.terms)
    epoch = node.epoch
    assert node.leadership.holds(epoch)
    goes_on = threading.Event()
    node.thread.post(goes_on.wait, 60.0)
    try:
        await until(lambda: not node.leadership.holds(epoch))
        assert not node.leads
    finally:
        goes_on.set()
    await until(lambda: node.epoch > epoch and node.leads)
    assert not node.leadership.holds(epoch)


async def test_a_hold_ends_by_the_clock_and_belongs_to_one_term(fake_clock):
    hold = TermHold(clock=fake_clock)
    assert not hold.holds(7)
    hold.set(7, fake_clock.boottime() + 1.0)
    assert hold.holds(7) and not hold.holds(6)
    await fake_clock.advance(1.01)
    assert not hold.holds(7)
    hold.set(7, fake_clock.boottime() + 1.0)
    hold.end()
    assert not hold.holds(7)
