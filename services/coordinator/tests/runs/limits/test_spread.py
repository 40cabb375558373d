"""Runs of one slot start in batches, each so many seconds after the one before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.loops import assign


async def spread(world: Any, make: Any, schedules: int = 7, batch: int = 3, delay: float = 7.0) -> Any:
    """Schedules with one common slot, whose time is answered."""
    world.settings.set(fire_batch_size=batch, fire_batch_delay_seconds=delay)
    await world.executor(slots=50)
    await world.apply(make.job(), *(make.schedule(f"s{i}") for i in range(schedules)))
    await world.steady()
    return world.now() + timedelta(seconds=9)


async def sent(world: Any) -> int:
    return len(await world.sql("SELECT id FROM scheduler.runs_live WHERE dispatched_at IS NOT NULL"))


@pytest.mark.seed(214)
async def test_batch_i_starts_i_delays_after_the_slot(world: Any, make: Any) -> None:
    slot = await spread(world, make)
    # Rows and the names of executors come ahead.
    await world.turn("fire", "assign")
    seen = []
    for seconds in (-1, 0, 6, 7, 13, 14):
        await world.at(slot + timedelta(seconds=seconds))
        await world.turn("assign")
        seen.append(await sent(world))
    assert seen == [0, 3, 3, 6, 6, 7]


async def test_the_next_start_is_known(world: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assign, "FREE_LOOK_AHEAD_SECONDS", 0.0)
    slot = await spread(world, make)
    await world.turn("fire", "assign")
    await world.at(slot)
    await world.turn("assign")
    done = await world.turn("assign")
    assert done.next_in is not None and 6.9 <= done.next_in <= 7.0


async def test_the_ledger_says_by_how_much(world: Any, make: Any) -> None:
    await spread(world, make)
    await world.turn("fire")
    rows = await world.sql(
        "SELECT message, count(*) AS n FROM scheduler.fire_ledger WHERE first_slot <= now() + interval '30 seconds'"
        " GROUP BY first_slot, message ORDER BY first_slot, message LIMIT 3"
    )
    assert [(row["message"], row["n"]) for row in rows] == [
        ("", 3),
        ("spread: starts 14 s after its slot", 1),
        ("spread: starts 7 s after its slot", 3),
    ]


async def test_a_spread_run_is_not_late_before_its_own_time(world: Any, make: Any) -> None:
    slot = await spread(world, make, delay=30.0)
    world.settings.set(skip_late_runs_after_seconds=10)
    await world.turn("fire", "assign")
    await world.at(slot)
    await world.turn("assign", "reap")
    await world.at(slot + timedelta(seconds=30))
    await world.turn("reap", "assign")
    assert await sent(world) == 6


async def test_without_a_delay_all_start_at_once(world: Any, make: Any) -> None:
    slot = await spread(world, make, delay=0.0)
    await world.turn("fire", "assign")
    await world.at(slot)
    await world.turn("assign")
    assert await sent(world) == 7
