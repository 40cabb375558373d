"""Ticks without work: one question to PostgreSQL stands for the reads of all loops. That it never says no too often is checked with each turn
of these tests' world (`World.turn`)."""

import asyncio
from types import SimpleNamespace
from typing import Any

from toban_coordinator.loops.base import Done, TermLoop
from toban_testing.clock import FakeClock

LOOPS = ("fire", "events", "assign", "dispatch", "reap")


async def resting(world: Any) -> list[str]:
    """The loops that would rest at a tick now."""
    return [name for name in LOOPS if await world.loops[name]._rests() is not None]


async def test_each_kind_of_work_ends_the_rest_of_its_loops(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.schedule())
    await world.steady()
    await world.turn(*LOOPS)
    while (await world.turn("fire", "assign")).moved:
        pass
    await world.sql("DELETE FROM scheduler.runs_live")
    assert await resting(world) == list(LOOPS)
    [run] = await world.start()
    assert await resting(world) == ["fire", "events", "dispatch"]
    await world.turn("assign")
    assert await resting(world) == ["fire", "events", "reap"]
    await world.finished(run)
    await world.turn("assign")
    world.sender.accepted.clear()
    assert await resting(world) == list(LOOPS)
    await world.sql("SELECT scheduler.emit_event('order.paid', '{}'::jsonb)")
    await world.sql("UPDATE scheduler.schedules SET next_run_at = %(n)s", n=world.now())
    assert await resting(world) == ["assign", "dispatch", "reap"]


class Bench:
    """A loop of a term under a fake clock; `turns` says of each turn whether it was one in full."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.turns: list[str] = []
        self.turned = asyncio.Event()
        self.fail = False
        deps: Any = SimpleNamespace(clock=self.clock, on_turn=lambda _turn: self.turned.set())
        self.loop = TermLoop("bench", self.work, 1.0, deps, rests=self.rests)

    async def work(self) -> Done:
        self.turns.append("full")
        if self.fail:
            raise RuntimeError("as the test wants it")
        return Done()

    async def rests(self) -> Done:
        self.turns.append("rest")
        return Done()

    async def next(self) -> str:
        async with asyncio.timeout(5):
            await self.turned.wait()
        self.turned.clear()
        return self.turns[-1]


async def test_only_a_tick_that_nothing_woke_may_be_a_rest() -> None:
    bench, stop = Bench(), asyncio.Event()
    task = asyncio.create_task(bench.loop.run(stop))
    assert await bench.next() == "full", "the first turn"
    await bench.clock.advance(1.0)
    assert await bench.next() == "rest"
    bench.loop.wake()
    assert await bench.next() == "full"
    bench.fail = True
    bench.loop.wake()
    assert await bench.next() == "full"
    bench.fail = False
    await bench.clock.advance(0.1)
    assert await bench.next() == "full", "the turn after one that failed"
    await bench.clock.advance(1.0)
    assert await bench.next() == "rest"
    stop.set()
    await task
