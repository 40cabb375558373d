"""Two copies of one incarnation never both keep its lease, and an honest one never loses it (docs/fencing.md 3.5)."""

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from toban_coordinator.app.executors.lease_grants import LeaseGrants
from toban_coordinator.store.executors import executors
from toban_fencing.executor_lease import NonceHold
from toban_store.tx import tx
from toban_testing.executor_rows import register
from toban_testing.waiting import until_async


@dataclass
class Copy:
    """An executor as coordinators see it. Its questions and their answers may be late, lost, or overtaken by others."""

    incarnation: str
    hold: NonceHold = field(default_factory=NonceHold)
    echo: int = 0
    asked: list[executors.Beat] = field(default_factory=list)
    answers: list[tuple[int, executors.Grant]] = field(default_factory=list)

    def fork(self):
        other = Copy(self.incarnation, echo=self.echo)
        other.hold.granted(self.hold.nonce, presented=0)
        return other

    def beat(self):
        return executors.Beat(incarnation=self.incarnation, echo=self.echo, nonce=self.hold.nonce)

    def receive(self, presented, grant):
        self.echo = max(self.echo, grant.grant_seq)
        if grant.granted:
            self.hold.granted(grant.nonce, presented=presented)
        elif not grant.nonce_known:
            self.hold.refused(presented)
        return grant.granted

    async def step(self, pool, random):
        """Something of all that can happen to a heartbeat."""
        kind = random.choice(("ask", "ask", "arrive", "arrive", "answer", "lose", "whole"))
        if kind == "ask":
            self.asked.append(self.beat())
        elif kind == "arrive" and self.asked:
            beat = self.asked.pop(random.randrange(len(self.asked)))
            self.answers.append((beat.nonce, await grant(pool, beat)))
        elif kind == "answer" and self.answers:
            self.receive(*self.answers.pop(random.randrange(len(self.answers))))
        elif kind == "lose" and self.answers:
            self.answers.pop()
        elif kind == "whole":
            await self.renews(pool)

    async def renews(self, pool):
        """One turn of the heartbeat's loop: a second question at once where the first brought only the number to echo."""
        return self.receive(self.hold.nonce, await grant(pool, self.beat())) or self.receive(
            self.hold.nonce, await grant(pool, self.beat())
        )


async def grant(pool, beat):
    return (await executors.grant(pool, [beat]))[beat.incarnation]


@pytest.mark.parametrize("seed", range(12))
async def test_an_honest_executor_keeps_its_lease_over_lost_and_late_answers(pool, seed):
    random, executor = Random(seed), Copy(await register(pool))
    for _ in range(12):
        for _ in range(random.randrange(12)):
            await executor.step(pool, random)
        assert await executor.renews(pool)


@pytest.mark.parametrize("seed", range(12))
async def test_of_two_copies_one_loses_the_lease(pool, seed):
    """Once a nonce of after the fork was presented, only its holder is granted anything."""
    random, original = Random(seed), Copy(await register(pool))
    for _ in range(random.randrange(9)):
        await original.step(pool, random)
    original.asked.clear()
    original.answers.clear()
    copies = [original, original.fork()]
    for _ in range(random.randrange(20)):
        await random.choice(copies).step(pool, random)
    for _ in range(2):
        random.shuffle(copies)
        await asyncio.gather(*(one.renews(pool) for one in copies))
    renewed = [await one.renews(pool) for one in copies * 3]
    assert renewed in ([True, False] * 3, [False, True] * 3)


async def test_a_copy_that_waited_for_the_row_of_the_other_gets_nothing(pool):
    """Both present what they were granted at the same time: the second one is judged by the row as the first has left it."""
    one = Copy(await register(pool))
    two = one.fork()
    for each in (one, two):
        assert await each.renews(pool)
    async with tx(pool) as t:
        # What a grant does with the row, held open.
        changed = "UPDATE scheduler.executors SET nonce = %(nonce)s, nonces = '{}' WHERE incarnation = %(incarnation)s"
        assert await t.execute(changed, {"nonce": one.hold.nonce, "incarnation": one.incarnation}) == 1
        waiting = asyncio.create_task(grant(pool, two.beat()))
        waits = "SELECT count(*) AS n FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = current_database()"
        await until_async(lambda: t.fetch_one(waits), lambda row: row["n"])
    late = await waiting
    assert (late.granted, late.nonce_known, late.nonce) == (False, False, 0)


async def test_copies_whose_heartbeats_share_a_batch_share_no_grant(pool):
    granter = LeaseGrants(pool=pool)
    incarnation = await register(pool)
    first = granter.heartbeat(executors.Beat(incarnation=await register(pool, instance="x2"), echo=0), [])
    both = [granter.heartbeat(executors.Beat(incarnation=incarnation, echo=0), []) for _ in range(2)]
    _, *answers = [answer.grant for answer in await asyncio.gather(first, *both)]
    assert [answer.granted for answer in answers] == [False, True]
    # And with different nonces: each is judged by its own.
    nonce = answers[1].nonce
    beats = [executors.Beat(incarnation=incarnation, echo=1, nonce=given) for given in (0, nonce, 0)]
    again = await asyncio.gather(*(granter.heartbeat(beat, []) for beat in beats))
    assert [(answer.grant.granted, answer.grant.nonce_known) for answer in again][1] == (True, True)


async def test_an_executor_of_an_earlier_release_presents_none(pool):
    incarnation = await register(pool)
    for echo in range(9):
        assert (await grant(pool, executors.Beat(incarnation=incarnation, echo=echo))).granted


async def test_a_copy_does_not_attest_the_end_of_the_other(pool, sql):
    one = Copy(await register(pool))
    two = one.fork()
    for each in (one, two, one):
        assert await each.renews(pool)
    await executors.attest_own(pool, one.incarnation, executors.STOPPED, nonce=two.hold.nonce)
    assert await sql("SELECT attested_reason FROM scheduler.executors") == [("",)]
    await executors.attest_own(pool, one.incarnation, executors.STOPPED, nonce=one.hold.nonce)
    assert await sql("SELECT attested_reason FROM scheduler.executors") == [(executors.STOPPED,)]


async def test_the_oldest_of_four_unanswered_grants_still_counts(pool):
    """An echo lets four grants pass; whichever of their answers arrives goes on."""
    incarnation = await register(pool)
    grants = [await grant(pool, executors.Beat(incarnation=incarnation, echo=0)) for _ in range(5)]
    assert [given.granted for given in grants] == [True] * 4 + [False]
    assert (await grant(pool, executors.Beat(incarnation=incarnation, echo=4, nonce=grants[0].nonce))).granted
    assert not (await grant(pool, executors.Beat(incarnation=incarnation, echo=4, nonce=grants[1].nonce))).granted
