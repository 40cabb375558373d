"""Settings of the leader's loops: their tick, and how fresh an executor must be for new work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.decide.placement.assign import FRESH_SECONDS, fresh_seconds
from toban_domain.settings import Settings


@pytest.mark.seed(62, 193)
async def test_the_tick_of_every_loop_that_looks_is_the_setting(world: Any) -> None:
    looking = ("fire", "assign", "dispatch", "reap", "resume")
    assert {world.loops[name].tick_seconds for name in looking} == {1.0}
    world.settings.set(leader_tick_seconds=0.25)
    assert {world.loops[name].tick_seconds for name in looking} == {0.25}
    assert world.loops["prune"].tick_seconds > 60, "the daily work stays as it is"


@pytest.mark.parametrize(("interval", "fresh"), [(0.2, FRESH_SECONDS), (1.0, 2.0), (2.4, 4.8), (60, 120)])
def test_freshness_follows_the_pace_of_heartbeats(interval: float, fresh: float) -> None:
    assert fresh_seconds(Settings({"heartbeat_interval_seconds": interval})) == fresh


async def test_executors_with_rare_heartbeats_get_work_between_two_of_them(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.at(world.now())
    world.time.fixed += timedelta(seconds=4)
    await world.turn("assign")
    assert await world.state(run) == "PENDING", "silent for twice the interval and more"
    world.settings.set(heartbeat_interval_seconds=2.4)
    await world.turn("assign")
    assert await world.state(run) == "ASSIGNED"
