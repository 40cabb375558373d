"""CooperativeYield: others run in time, and not more often than needed."""

import asyncio

from toban_runtime.clock import SystemClock
from toban_runtime.cooperative_yield import CooperativeYield


class Hand(SystemClock):
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def monotonic(self) -> float:
        return self.time


async def test_others_run_once_the_time_is_up_and_not_before() -> None:
    clock = Hand()
    yielder = CooperativeYield(clock, 0.005)
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(100):
        await yielder.yield_if_due()
    assert turns == []
    for step in range(1, 4):
        clock.time += 0.006
        await yielder.yield_if_due()
        await yielder.yield_if_due()
        assert len(turns) == step
    task.cancel()


async def test_time_that_others_took_does_not_count() -> None:
    clock = Hand()
    yielder = CooperativeYield(clock, 0.005)
    turns: list[int] = []

    async def slow() -> None:
        for _ in range(2):
            turns.append(len(turns))
            clock.time += 1.0
            await asyncio.sleep(0)

    task = asyncio.create_task(slow())
    clock.time += 0.01
    await yielder.yield_if_due()
    await yielder.yield_if_due()
    assert turns == [0]
    task.cancel()
