"""The epochs are used up: with every coordinator stopped they begin again, and nothing of before has authority."""

import asyncio

import pytest

from toban_coordinator.main import main, reset_epochs
from toban_coordinator.store.cluster import leader
from toban_coordinator.store.executors import executors
from toban_domain.epoch import MAX_COUNTER, MAX_GENERATION, Epoch, EpochExhausted
from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_runtime.ids import IdSource
from toban_store.tx import fenced_tx
from toban_testing.executor_rows import hold, register
from toban_testing.waiting import until

IDS = IdSource()
LAST = Epoch(MAX_GENERATION, MAX_COUNTER).pack()


async def take(pool):
    row = await leader.read_row(pool)
    me = leader.Contender(incarnation=IDS.uuid(), worker_id=9, address="a:1", node_id="n")
    return await leader.take_over(pool, me, observed=row["epoch"], beat=row["beat"])


async def resetting(pool, clock):
    """The command, once it waits."""
    task = asyncio.create_task(reset_epochs.reset(pool, clock))
    await until(lambda: clock.sleepers or task.done())
    return task


async def passed(clock, task, seconds):
    """So much time passes, second by second, each after the command has looked."""
    for _ in range(seconds):
        await clock.advance(1.0)
        await until(lambda: clock.sleepers or task.done())


async def test_a_cluster_that_used_up_its_epochs_leads_again(pool, sql, term, fake_clock):
    incarnation = await register(pool)
    await sql("UPDATE scheduler.leader SET epoch = %s, cluster_id = gen_random_uuid()", LAST)
    await sql("UPDATE scheduler.leader_beat SET epoch = %s", LAST)
    with pytest.raises(EpochExhausted):
        await take(pool)
    [(cluster,)] = await sql("SELECT cluster_id FROM scheduler.leader")
    task = await resetting(pool, fake_clock)
    await passed(fake_clock, task, 10)
    assert not task.done(), "a lease may be held for 10 s and more"
    await passed(fake_clock, task, 2)
    epoch = await task
    taken = await take(pool)
    assert taken.term.epoch > epoch and Epoch.unpack(taken.term.epoch).generation < 9
    assert not taken.settled, "the next leader waits for a lease as well"
    assert await sql("SELECT state FROM scheduler.executors") == [("off",)]
    assert await executors.grant(pool, [executors.Beat(incarnation=incarnation, echo=0)]) == {}
    assert await sql("SELECT cluster_id FROM scheduler.leader") != [(cluster,)], "what was signed before proves nothing"
    assert await sql("SELECT actor, action FROM scheduler.admin_action_log") == [("reset-epochs", "reset_epochs")]
    with pytest.raises(FencedOut):
        async with fenced_tx(pool, term):
            pass


@pytest.mark.parametrize("sign", ["a beat", "a grant", "a coordinator"])
async def test_it_changes_nothing_while_anything_lives(pool, sql, term, fake_clock, sign):
    incarnation = await register(pool)
    task = await resetting(pool, fake_clock)
    await passed(fake_clock, task, 5)
    if sign == "a beat":
        await leader.beat(pool, term.epoch, last_tick_at=None)
    elif sign == "a grant":
        await executors.grant(pool, [executors.Beat(incarnation=incarnation, echo=0)])
    else:
        await sql(
            "INSERT INTO scheduler.coordinators (incarnation, worker_id, node_id, address, pid, version)"
            " VALUES (gen_random_uuid(), 77, 'n', 'a:1', 1, 'v')"
        )
    await passed(fake_clock, task, 1)
    with pytest.raises(TobanError, match="stop all coordinators") as caught:
        await task
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE
    assert await sql("SELECT epoch FROM scheduler.leader") == [(term.epoch,)]


async def test_no_generation_of_a_live_run_is_used_again(pool, sql, fake_clock):
    await sql("UPDATE scheduler.leader SET epoch = %s", LAST)
    incarnation = await register(pool)
    for generation in (1, 2, 4):
        await hold(sql, incarnation, "RUNNING", Epoch(generation, 1, 1).pack())
    task = await resetting(pool, fake_clock)
    await passed(fake_clock, task, 12)
    assert Epoch.unpack(await task).generation == 3


def test_unknown_arguments_are_named(capsys):
    assert main(["reset"]) == 64
    assert "reset-epochs" in capsys.readouterr().err
