"""What a coordinator knows of the leader: never the term before its own, and since when nobody leads (docs/fencing.md 3.1)."""

import asyncio
import concurrent.futures

import pytest

from toban_coordinator.leadership import election_runner
from toban_coordinator.leadership.known_leader import OLDER_EPOCH_SECONDS, KnownLeader
from toban_coordinator.store.cluster import leader
from toban_testing.clock import FakeClock

STEP = 1 << 27
ME = leader.Contender(incarnation="me", worker_id=7, address="me:1", node_id="n1")


def row(epoch=STEP, beat=1, resigned=-1, address="other:1"):
    return {
        "epoch": epoch,
        "holder": "other",
        "worker_id": 3,
        "address": address,
        "node_id": "n2",
        "beat": beat,
        "resigned_epoch": resigned,
        "last_tick_at": None,
        "last_fire_at": None,
    }


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def known(clock):
    return KnownLeader(clock=clock)


def read(known, **fields):
    known.note_row(row(**fields), read=known.begin_read())


async def test_a_read_that_was_under_way_when_the_own_term_began_is_ignored(known, clock):
    before = known.begin_read()
    known.begin_term(2 * STEP, ME)
    await clock.advance(2 * OLDER_EPOCH_SECONDS)
    known.note_row(row(), read=before)
    assert (known.view.epoch, known.view.address) == (2 * STEP, "me:1")
    known.end_term(None)
    await clock.advance(2 * OLDER_EPOCH_SECONDS)
    known.note_row(row(), read=before)
    assert known.view.epoch == 2 * STEP, "also when that term is over again"


def test_while_it_leads_no_read_counts(known):
    known.begin_term(STEP, ME)
    read(known, epoch=STEP, address="other:1")
    assert known.view.address == "me:1"
    known.end_term(None)
    read(known, epoch=2 * STEP)
    assert known.view.address == "other:1"


async def test_an_older_epoch_is_ignored_until_no_newer_one_has_shown_for_a_while(known, clock):
    """A server that lags shows it now and then; one that was restored shows nothing else."""
    read(known, epoch=2 * STEP, address="new:1")
    read(known, epoch=STEP, address="old:1")
    assert known.view.address == "new:1"
    await clock.advance(OLDER_EPOCH_SECONDS + 0.1)
    read(known, epoch=STEP, address="old:1")
    assert known.view.address == "old:1"


async def test_only_a_beat_within_a_term_shows_that_a_coordinator_leads(known, clock):
    read(known, epoch=STEP, beat=1)
    await clock.advance(4.0)
    for number in range(2, 6):
        # Terms that end at once, and rows that were resigned.
        read(known, epoch=number * STEP, beat=number)
        read(known, epoch=number * STEP, beat=number + 1, resigned=number * STEP)
    assert known.leaderless_seconds == pytest.approx(4.0)
    read(known, epoch=6 * STEP, beat=10)
    read(known, epoch=6 * STEP, beat=11)
    assert known.leaderless_seconds == 0.0


async def test_an_own_term_counts_by_its_beats(known, clock):
    await clock.advance(9.0)
    known.begin_term(STEP, ME)
    assert known.leaderless_seconds == pytest.approx(9.0)
    known.note_beat(4)
    assert (known.leaderless_seconds, known.view.beat) == (0.0, 4)
    await clock.advance(1.0)
    known.end_term(None)
    known.note_beat(5)
    assert known.leaderless_seconds == pytest.approx(1.0), "an answer that came after its end"


async def test_a_leader_shows_its_own_epoch_although_a_read_returns_late(cluster, monkeypatch):
    """Live: a read was under way at the take-over, and brings the row of the term before when the own term runs."""
    take_over, read_row, note_row = leader.take_over, leader.read_row, KnownLeader.note_row
    # Used in the election's thread, and waited for here.
    taking, reading, leads = (asyncio.Event() for _ in range(3))
    noted = concurrent.futures.Future()

    async def slow_take_over(*args, **kwargs):
        taking.set()
        await reading.wait()
        return await take_over(*args, **kwargs)

    async def slow_read(*args, **kwargs):
        found = await read_row(*args, **kwargs)
        if taking.is_set() and not reading.is_set():
            reading.set()
            await leads.wait()
        return found

    def noting(self, row, *, read):
        before = self.view
        note_row(self, row, read=read)
        if leads.is_set() and not noted.done():
            noted.set_result((row["epoch"], self.view is before))

    monkeypatch.setattr(leader, "take_over", slow_take_over)
    monkeypatch.setattr(leader, "read_row", slow_read)
    monkeypatch.setattr(KnownLeader, "note_row", noting)
    monkeypatch.setattr(election_runner, "READ_SECONDS", 30.0)
    monkeypatch.setattr(election_runner, "TAKE_SECONDS", 30.0)
    node = await cluster()
    async with asyncio.timeout(60):
        await node.thread.run(taking.wait())
        node.leadership.read_leader_row()
        await node.leadership.changed()
        node.thread.post(leads.set)
        assert await asyncio.wrap_future(noted) == (0, True), "the view stays"
    view = node.leadership.view()
    assert view.leading and view.epoch > 0
    assert view.address == node.leadership.me.address
