"""A cluster that grows from three executors to fifty while runs wait."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from toban_coordinator.store.cluster import read_models
from toban_store.tx import autocommit

SLOTS = 4


@pytest.mark.seed(14)
async def test_three_executors_grow_to_fifty(world: Any, make: Any) -> None:
    await world.apply(make.job())
    for number in range(1, 4):
        await world.executor(number, slots=SLOTS)
    runs = await world.start(count=400)
    await world.turn("assign", "dispatch")
    assert sent(world) == dict.fromkeys(world.incarnations, SLOTS), "three executors are full"
    for number in range(4, 51):
        await world.executor(number, slots=SLOTS)
    await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now()")
    await world.turn("assign", "dispatch")
    assert sent(world) == dict.fromkeys(world.incarnations, SLOTS), "fifty executors are full"
    ended = 0
    while ended < len(world.orders.starts):
        begun, ended = world.orders.starts[ended:], len(world.orders.starts)
        for incarnation, order in begun:
            await world.report(order.key, make.outcome(), incarnation)
        # On a busy machine so many reports last longer than a heartbeat counts as fresh.
        await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now()")
        await world.turn("assign", "dispatch")
    assert sorted(order.key.run_id for _, order in world.orders.starts) == sorted(runs), "each run was sent once"
    assert set(sent(world).values()) == {2 * SLOTS}
    assert await world.sql("SELECT DISTINCT state::text FROM scheduler.job_runs") == [{"state": "SUCCEEDED"}]


def sent(world: Any) -> dict[str, int]:
    """How many runs each executor was sent."""
    return dict(Counter(incarnation for incarnation, _ in world.orders.starts))


async def test_runs_that_wait_at_an_executor_have_no_slot_of_it(world: Any, make: Any) -> None:
    await world.apply(make.job())
    await world.executor(1, slots=SLOTS)
    await world.start(count=SLOTS)
    await world.turn("assign")
    await world.sql("UPDATE scheduler.executors SET slots = 1")
    async with autocommit(world.pool) as t:
        [shown] = await read_models.executors(t, include_off=False)
    assert (shown["running"], shown["slots"]) == (1, 1)
