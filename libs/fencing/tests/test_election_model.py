"""Two or three electors over a model of the leader row and the lock, with pauses, lost Redis, lost PostgreSQL and delays.

I1: epochs strictly increase. I2 in small: a deposed leader's beat never lands. A healthy cluster has a leader again after a bounded time, and a
healthy leader is not deposed by Redis alone.
"""

import heapq
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_fencing import election_types as e
from toban_fencing.election_state_machine import decide, next_due

STEP = 1 << 27
# A lock that anybody wrote: of an epoch that never was, without an end.
POISON = ((1 << 62, "nobody"), float("inf"))


class World:
    """Time, the row, the lock; calls take `delay` and fail while their server is away."""

    def __init__(self, size, delay=0.01):
        self.now = 0.0
        self.delay = delay
        self.row = {"epoch": 0, "holder": "", "resigned": -1, "beat": 0}
        self.lock = None
        self.pg = self.redis = True
        self.epochs = []
        self.queue = []
        self.order = itertools.count()
        self.nodes = [Node(self, f"n{number}") for number in range(size)]

    def at(self, seconds, call):
        heapq.heappush(self.queue, (self.now + seconds, next(self.order), call))

    def run(self, seconds):
        end = self.now + seconds
        while self.queue and self.queue[0][0] <= end:
            self.now, _, call = heapq.heappop(self.queue)
            call()
        self.now = end

    def leaders(self):
        return [
            node for node in self.nodes if node.up and node.paused_until <= self.now and node.state.term is not None
        ]

    def held(self):
        if self.lock is not None and self.lock[1] <= self.now:
            self.lock = None
        return self.lock


class Node:
    """One coordinator: its elector, and effects carried out on the world."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.state = e.ElectorState(me=name)
        self.up, self.paused_until, self.stops = True, 0.0, []
        world.at(0, self.tick)

    def tick(self):
        if not self.up:
            return
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until - self.world.now, self.tick)
            return
        self.feed(e.Tick())
        self.world.at(max(0.01, next_due(self.state, self.world.now) - self.world.now), self.tick)

    def feed(self, event):
        if not self.up:
            return
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until - self.world.now, lambda: self.feed(event))
            return
        self.state, effects = decide(self.state, event, self.world.now)
        for effect in effects:
            self.carry(effect)

    def call(self, server, do, answer, failed):
        """`do` runs at the server half of the delay from now, `answer(result)` comes back after the other half."""

        def arrive():
            ok = getattr(self.world, server)
            result = do() if ok else None
            event = answer(result) if ok else failed
            self.world.at(self.world.delay / 2 if ok else 0.3, lambda: event is not None and self.feed(event))

        self.world.at(self.world.delay / 2, arrive)

    def carry(self, effect):
        world, sent = self.world, self.world.now
        match effect:
            case e.ReadRow():
                read = lambda: e.LeaderRow(  # noqa: E731
                    epoch=world.row["epoch"],
                    holder=world.row["holder"],
                    resigned_epoch=world.row["resigned"],
                    beat=world.row["beat"],
                )
                self.call("pg", read, lambda row: e.RowRead(row=row), e.RowRead(row=None))
            case e.TakeOver(observed=observed):
                lost = e.TakeOverDone(sent_at=sent, epoch=None)
                self.call(
                    "pg", lambda: self.take(observed), lambda epoch: e.TakeOverDone(sent_at=sent, epoch=epoch), lost
                )
            case e.Beat(epoch=epoch):
                self.call(
                    "pg",
                    lambda: self.beat(epoch),
                    lambda ok: e.BeatDone(epoch=epoch, ok=ok),
                    e.BeatDone(epoch=epoch, ok=None),
                )
            case e.Resign(epoch=epoch):
                self.call("pg", lambda: self.resign(epoch), lambda _: None, None)
            case e.TryLock():
                gone = e.LockTried(sent_at=sent, outcome=e.LockOutcome.UNREACHABLE)
                self.call(
                    "redis",
                    lambda: self.claim(0, e.Overwrite.OLDER),
                    lambda o: e.LockTried(sent_at=sent, outcome=o),
                    gone,
                )
            case e.Renew(epoch=epoch, overwrite=overwrite):
                gone = e.RenewDone(epoch=epoch, sent_at=sent, outcome=e.LockOutcome.UNREACHABLE)
                self.call(
                    "redis",
                    lambda: self.claim(epoch, overwrite),
                    lambda o: e.RenewDone(epoch=epoch, sent_at=sent, outcome=o),
                    gone,
                )
            case e.ReleaseLock(epoch=epoch):
                self.call("redis", lambda: self.release(epoch), lambda _: None, None)
            case e.StopLeading(reason=reason):
                self.stops.append(reason)

    def take(self, observed):
        row = self.world.row
        if (row["epoch"], row["beat"]) != (observed.epoch, observed.beat):
            return None
        row.update(epoch=row["epoch"] + STEP, holder=self.name, beat=row["beat"] + 1)
        self.world.epochs.append(row["epoch"])
        return row["epoch"]

    def beat(self, epoch):
        row = self.world.row
        if row["epoch"] != epoch:
            return False
        assert row["holder"] == self.name, "a beat of somebody else's epoch"
        row["beat"] += 1
        return True

    def resign(self, epoch):
        if self.world.row["epoch"] == epoch:
            self.world.row["resigned"] = epoch

    def claim(self, epoch, overwrite):
        held = self.world.held()
        if held is not None and held[0] != (epoch, self.name) and overwrite is not e.Overwrite.ANY:
            theirs = held[0][0]
            if epoch == 0 or theirs >= epoch or (theirs == 0 and overwrite is e.Overwrite.OLDER):
                return e.LockOutcome.FOREIGN
        self.world.lock = ((epoch, self.name), self.world.now + 2.0)
        return e.LockOutcome.HELD

    def release(self, epoch):
        held = self.world.held()
        if held is not None and held[0] == (epoch, self.name):
            self.world.lock = None


FAULTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["pause", "kill", "redis", "flush", "poison", "pg", "slow", "evidence", "degrade", "way", "rest"]
        ),
        st.integers(0, 2),
        st.floats(0.05, 6.0),
    ),
    max_size=12,
)


def inject(world, kind, number, seconds):
    node = world.nodes[number % len(world.nodes)]
    match kind:
        case "pause":
            node.paused_until = world.now + seconds
        case "kill":
            if sum(other.up for other in world.nodes) > 1:
                node.up = False
        case "redis" | "pg":
            setattr(world, kind, False)
            world.run(seconds)
            setattr(world, kind, True)
        case "flush":
            world.lock = None
        case "poison":
            world.lock = POISON
        case "slow":
            world.delay = min(0.4, seconds / 10)
            world.run(seconds)
            world.delay = 0.01
        case "evidence":
            node.feed(e.DeathEvidence(world.row["epoch"]))
        case "degrade":
            node.feed(e.DegradeSeen(1))
        case "way":
            node.paused_until = 0.0
            node.feed(e.YieldLeadership(True))
            world.run(seconds)
            # It is told again and again: a take-over that was under way may have been won.
            node.feed(e.YieldLeadership(True))
            assert not node.up or node.state.term is None
            node.feed(e.YieldLeadership(False))
    world.run(seconds / 2)


def check_safety(world):
    assert world.epochs == sorted(set(world.epochs)), "epochs must strictly increase"
    current = [node for node in world.leaders() if node.state.term.epoch == world.row["epoch"]]
    assert len(current) <= 1, "two leaders of one epoch"


@pytest.mark.seed(16)
@given(size=st.integers(2, 3), faults=FAULTS)
def test_safe_under_faults_and_live_after_them(size, faults):
    world = World(size)
    world.run(2.0)
    for kind, number, seconds in faults:
        inject(world, kind, number, seconds)
        check_safety(world)
    for node in world.nodes:
        node.paused_until = 0.0
    world.run(10.0)
    check_safety(world)
    leaders = world.leaders()
    assert len(leaders) == 1, "a healthy cluster has one leader"
    assert leaders[0].state.term.epoch == world.row["epoch"]
    before = list(world.epochs)
    world.run(20.0)
    assert world.epochs == before, "and it keeps it"


@given(size=st.integers(2, 3), seconds=st.floats(0.1, 40.0), flush=st.booleans())
def test_redis_alone_never_deposes_a_healthy_leader(size, seconds, flush):
    world = World(size)
    world.run(3.0)
    world.redis = False
    world.run(seconds)
    world.redis = True
    if flush:
        world.lock = None
    world.run(10.0)
    assert len(world.epochs) == 1
    assert world.held()[0][0] == world.row["epoch"]


@given(size=st.integers(1, 3), seconds=st.floats(0.1, 10.0), every=st.floats(0.02, 2.0))
def test_a_poisoned_lock_deposes_no_leader(size, seconds, every):
    """Once, or again and again as another installation on the same Redis does it."""
    world = World(size)
    world.run(3.0)
    for _ in range(int(seconds / every) + 1):
        world.lock = POISON
        world.run(every)
    world.run(1.0)
    assert len(world.epochs) == 1
    assert world.held()[0][0] == world.row["epoch"]


@given(size=st.integers(2, 3), moment=st.floats(0.0, 1.0))
def test_a_poisoned_lock_keeps_no_candidate_back(size, moment):
    world = World(size)
    world.run(3.0 + moment)
    world.leaders()[0].up = False
    world.lock = POISON
    world.run(4.5)
    assert len(world.epochs) == 2
    assert world.held()[0][0] == world.row["epoch"]


@given(moment=st.floats(0.0, 1.0), evidence=st.booleans(), redis=st.booleans())
def test_a_crash_is_taken_over_in_time(moment, evidence, redis):
    world = World(2)
    world.run(3.0)
    world.redis = redis
    world.run(2.0 + moment)
    leader = world.leaders()[0]
    other = next(node for node in world.nodes if node is not leader)
    leader.up = False
    if evidence:
        other.feed(e.DeathEvidence(world.row["epoch"]))
    bound = 1.0 if evidence else 2.7 if redis else 4.5
    world.run(bound)
    assert len(world.epochs) == 2


@given(moment=st.floats(0.0, 1.0), redis=st.booleans())
def test_a_planned_hand_over_is_quick(moment, redis):
    world = World(3)
    world.run(3.0)
    world.redis = redis
    world.run(1.0 + moment)
    world.leaders()[0].feed(e.Leave())
    world.run(0.4)
    assert len(world.epochs) == 2
