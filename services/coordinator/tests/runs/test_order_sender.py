"""Executors that the leader cannot reach while their heartbeats arrive elsewhere, and the marks of runs in Redis."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from toban_coordinator.app.placement.order_sender import OrderSender
from toban_coordinator.loops.term_loop import TermLoop, TurnOutcome
from toban_coordinator.ports.orders import StartResult, Target
from toban_domain.epoch import Epoch
from toban_domain.errors import FencedOut
from toban_domain.outcome import AttemptKey
from toban_fencing.redis_client import RedisLink, open_client
from toban_fencing.worker_registry import RunLeases
from toban_runtime.clock import SystemClock

OLDER = "UPDATE scheduler.runs_live SET dispatched_at = dispatched_at - interval '6 s'"


async def cut_off(world: Any, make: Any) -> tuple[str, int]:
    """An executor that the leader alone cannot reach, and a run that was to start there."""
    one = str(await world.executor(1))
    world.orders.down.add(one)
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign", "dispatch")
    assert await world.state(run) == "ASSIGNED" and world.orders.starts == []
    return one, int(run)


async def test_new_work_avoids_an_executor_that_was_not_reached(world: Any, make: Any) -> None:
    await cut_off(world, make)
    two = await world.executor(2, slots=2)
    runs = await world.start(count=3)
    await world.turn("assign")
    assert [to for to, _ in world.orders.starts] == [two, two]
    assert sorted([await world.state(run) for run in runs]) == ["ASSIGNED", "ASSIGNED", "PENDING"]


async def test_an_undelivered_start_is_taken_back_by_way_of_a_heartbeat(world: Any, make: Any) -> None:
    one, run = await cut_off(world, make)
    two = await world.executor(2)
    await world.sql(OLDER)
    await world.turn("dispatch")
    assert await world.heartbeat(one, lambda order: "gone") == ["revoke"]
    await world.turn("reap")
    row = await world.run(run)
    assert (row["state"], row["attempt"], row["lost_count"], row["token"]) == ("PENDING", 1, 0, None)
    assert await world.sql("SELECT id FROM scheduler.executor_orders") == []
    await world.sql("UPDATE scheduler.runs_live SET not_before = NULL")
    await world.turn("assign")
    assert [(to, order.key.run_id) for to, order in world.orders.starts] == [(two, run)]
    attempts = await world.sql("SELECT state FROM scheduler.job_attempts ORDER BY token")
    assert [attempt["state"] for attempt in attempts] == ["REVOKED", "DISPATCHED"]


@pytest.mark.parametrize("answer", ["running", "finished", "STALE_EPOCH"])
async def test_what_is_not_gone_stays(world: Any, make: Any, answer: str) -> None:
    one, run = await cut_off(world, make)
    await world.sql(OLDER)
    await world.turn("dispatch")
    await world.heartbeat(one, lambda order: answer)
    await world.turn("reap")
    assert await world.state(run) == "ASSIGNED"
    assert await world.sql("SELECT id FROM scheduler.executor_orders") == []


async def test_a_promise_about_an_earlier_token_moves_nothing(world: Any, make: Any) -> None:
    one, run = await cut_off(world, make)
    await world.sql(OLDER)
    await world.turn("dispatch")
    await world.heartbeat(one, lambda order: "gone")
    await world.sql("UPDATE scheduler.runs_live SET token = token + 1")
    await world.turn("reap")
    assert await world.state(run) == "ASSIGNED"


async def test_an_executor_that_is_reached_again_gets_work(world: Any, make: Any) -> None:
    one, run = await cut_off(world, make)
    world.orders.down.clear()
    world.orders.revoke_answer = "running"
    await world.sql(OLDER)
    await world.turn("dispatch")
    assert world.sender.reach.avoided() == frozenset() and not world.sender.reach.lost(one)
    await world.start()
    await world.turn("assign")
    assert [to for to, _ in world.orders.starts] == [one]
    assert await world.state(run) == "ASSIGNED"


async def test_a_relayed_cancel_of_what_the_executor_does_not_know(world: Any, make: Any) -> None:
    one, run = await cut_off(world, make)
    await world.cancel(run)
    await world.turn("dispatch")
    kinds = await world.heartbeat(one, lambda order: "unknown" if order.kind == "cancel" else "gone")
    assert kinds == ["cancel", "revoke"]
    await world.turn("reap")
    assert await world.state(run) == "CANCELED"


async def test_a_relayed_cancel_of_what_runs(world: Any, make: Any) -> None:
    one, run = await cut_off(world, make)
    await world.cancel(run)
    await world.turn("dispatch")
    await world.heartbeat(one, lambda order: "cancelling" if order.kind == "cancel" else "running")
    await world.turn("reap")
    assert await world.state(run) == "CANCEL_REQUESTED"


async def test_orders_of_an_executor_that_is_off_are_dropped(world: Any, make: Any) -> None:
    _, run = await cut_off(world, make)
    await world.sql(OLDER)
    await world.turn("dispatch")
    await world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    await world.turn("reap")
    assert await world.state(run) == "PENDING"
    assert await world.sql("SELECT id FROM scheduler.executor_orders") == []


@pytest.mark.seed(72, 88)
async def test_runs_are_marked_and_a_higher_mark_stays(world: Any, make: Any, redis_url: str) -> None:
    link = RedisLink(client=open_client(redis_url), clock=SystemClock())

    async def mark_of(run: int) -> Any:
        return await link.call(lambda client: client.get(f"scheduler:jobrun:lease:{run}"))

    world.marks = RunLeases(link=link)
    world.take(world.term)
    await world.executor()
    await world.apply(make.job())
    mine, theirs = await world.start(count=2)
    higher = Epoch(1, 2).pack()
    await world.marks.take([theirs], higher)
    await world.turn("assign")
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "marks of runs"))
    assert (await mark_of(mine), await mark_of(theirs)) == (str(world.term.epoch), str(higher))
    # Only the fence says who may write.
    assert [await world.state(run) for run in (mine, theirs)] == ["ASSIGNED", "ASSIGNED"]
    await link.close()


async def test_marks_that_hang_are_not_waited_for(world: Any, make: Any) -> None:
    class Hanging:
        asked = 0

        async def take(self, run_ids: Any, epoch: int) -> frozenset[int]:
            self.asked += 1
            await asyncio.Event().wait()
            return frozenset()

    world.marks = Hanging()
    world.take(world.term)
    await world.executor()
    await world.apply(make.job())
    for _ in range(3):
        [run] = await world.start()
        await world.turn("assign")
        assert await world.state(run) == "ASSIGNED"
    assert world.marks.asked == 1
    await world.loops["assign"]._close()


async def test_nothing_is_sent_once_the_term_does_not_hold_any_more(world: Any, make: Any) -> None:
    """The main loop stood still: whatever waited in it is the next leader's to decide."""
    one = str(await world.executor(1))
    await world.apply(make.job())
    [run] = await world.start()
    holds = True
    sent: list[Any] = []

    class Orders:
        async def start(self, _target: Any, _term: Any, batch: Any, _smallest: int) -> list[StartResult]:
            sent.extend(batch)
            return [StartResult(order.key, True) for order in batch]

    sender = OrderSender(orders=Orders(), term=world.term, answers=object(), clock=SystemClock(), holds=lambda: holds)
    target, order = Target(one, 1, "a:1"), SimpleNamespace(key=AttemptKey(int(run), 1), span=None)
    sender.start(target, [order], smallest_live=0)
    await sender.idle()
    assert sent == [order]
    holds = False
    sender.start(target, [order], smallest_live=0)
    await sender.idle()
    assert sent == [order]
    with pytest.raises(FencedOut):
        sender.raise_broken()


async def test_no_turn_begins_once_the_term_does_not_hold_any_more(world: Any) -> None:
    turns = []

    async def turn() -> TurnOutcome:
        turns.append(1)
        return TurnOutcome()

    ended: asyncio.Queue[Any] = asyncio.Queue()
    deps = replace(world.deps, holds=lambda: not turns, on_turn=ended.put_nowait)
    loop, stop = TermLoop("work", turn, 0.01, deps), asyncio.Event()
    running = asyncio.create_task(loop.run(stop))
    assert (await ended.get()).error is None
    assert isinstance((await ended.get()).error, FencedOut)
    stop.set()
    await running
    assert turns == [1]
