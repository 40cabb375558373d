"""Runs of jobs with `isolation: isolated` on a real PostgreSQL: they go to executors that registered as isolated, and to no other."""

from __future__ import annotations

from typing import Any


async def test_an_isolated_run_never_goes_to_a_shared_executor(world: Any, make: Any) -> None:
    # As a coordinator of the release before writes the row: without the class. A label is no class.
    old = await world.executor(1, labels={"isolation": "isolated"})
    await world.apply(make.job(isolation="isolated"), make.job("plain"))
    [run], [plain] = await world.start(), await world.start("plain")
    await world.turn("assign")
    assert (await world.state(run), await world.state(plain)) == ("PENDING", "ASSIGNED")
    assert [incarnation for incarnation, _ in world.orders.starts] == [old]
    isolated = await world.executor(2)
    await world.sql("UPDATE scheduler.executors SET isolation = 'isolated' WHERE node_id = 'e2'")
    await world.turn("assign")
    assert await world.state(run) == "ASSIGNED"
    assert [incarnation for incarnation, _ in world.orders.starts] == [old, isolated]
