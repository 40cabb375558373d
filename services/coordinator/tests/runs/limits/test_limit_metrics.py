"""What the metrics of limits show: the figures behind the alerts of their runbooks."""

from __future__ import annotations

from typing import Any

import pytest

from toban_coordinator.app.limits.breakers import BreakerOperations
from toban_observability import metrics


@pytest.fixture
def desk(world: Any) -> BreakerOperations:
    return BreakerOperations(pool=world.pool)


async def figure(world: Any, name: str, **labels: str) -> float:
    await world.turn("cluster_metrics")
    found = metrics.REGISTRY.get_sample_value(f"toban_{name}", labels)
    assert found is not None
    return found


@pytest.mark.seed(205)
async def test_how_much_is_admitted_taken_and_waits(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"limit": 2}), make.job("queued", concurrency={"policy": "queue"}))
    await world.start(count=5)
    await world.start("queued", count=2)
    await limited.turns(2)
    found = {
        name: [await figure(world, f"limits_{name}", kind=kind) for kind in ("job", "group", "pool")]
        for name in ("size", "held", "waiting")
    }
    assert found == {"size": [2, 1, 0], "held": [2, 1, 0], "waiting": [3, 1, 0]}
    assert await figure(world, "limits", state="full") == 1


async def test_breakers_and_reduced_limits_are_counted(
    world: Any, make: Any, limited: Any, desk: BreakerOperations
) -> None:
    await world.apply(make.job(concurrency={"limit": 10}), make.job("other", concurrency={"limit": 10}))
    assert await figure(world, "breakers", state="open") == await figure(world, "limits_reduced") == 0
    await desk.open("job:hello", reason="down", actor="ada")
    await desk.signal("job:other", "soft", ttl_seconds=600, reason="", actor="db")
    assert await figure(world, "breakers", state="open") == await figure(world, "limits_reduced") == 1
    await desk.close("job:hello", reason="", actor="ada")
    assert await figure(world, "breakers", state="open") == 0


@pytest.mark.seed(207)
async def test_a_limit_with_room_whose_runs_do_not_resume_is_idle(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"limit": 1}))
    await world.start(count=3)
    await limited.turns(2)
    assert await figure(world, "limits_idle") == 0
    [first] = await limited.live()
    await limited.end(first)
    # Loop `resume` does not turn.
    assert await figure(world, "limits_idle") == 1
    await limited.turns(2)
    assert await figure(world, "limits_idle") == 0


async def test_a_heavy_run_that_does_not_fit_is_no_idle_limit(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=9)
    await world.sql("INSERT INTO scheduler.limits (name, value) VALUES ('pool:p', 3)")
    await world.apply(make.job(concurrency={"pools": {"p": 2}}))
    await world.start(count=2)
    await limited.turns(2)
    assert len(await limited.live()) == 1 and await figure(world, "limits_idle") == 0


async def test_a_full_limit_that_lets_nothing_start_is_blocked_for_so_long(world: Any, make: Any, limited: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(concurrency={"limit": 1}))
    await world.start(count=2)
    await limited.turns(2)
    assert 0 <= await figure(world, "limits_blocked_seconds") < 3000
    await world.sql("UPDATE scheduler.runs_live SET deferred_at = now() - interval '3 h' WHERE state = 'DEFERRED'")
    # Runs wait for hours behind others that come and go: that is a long queue, and no blocked limit.
    assert await figure(world, "limits_blocked_seconds") < 3000
    await world.sql(
        "UPDATE scheduler.runs_live SET dispatched_at = now() - interval '2 h', assigned_at = now() - interval '2 h'"
        " WHERE dispatched_at IS NOT NULL"
    )
    assert 7200 <= await figure(world, "limits_blocked_seconds") < 10000
