"""WatchChanges: what it tells of runs, the cluster and changes by people; and that nothing is read while nobody watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toban_coordinator.app.cluster import change_feed
from toban_coordinator.app.cluster.change_feed import ChangeFeed
from toban_coordinator.decide.cluster.changes import ALL, Changes, Look, changes
from toban_observability import metrics
from toban_runtime.clock import SystemClock

WAIT = 20.0


@pytest.fixture
async def feed(world: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChangeFeed]:
    monkeypatch.setattr(change_feed, "LOOK_SECONDS", 0.02)
    made = ChangeFeed(pool=world.pool, clock=SystemClock())
    yield made
    await made.stop()


async def until(watch: AsyncIterator[Changes], wanted: Any) -> Changes:
    async with asyncio.timeout(WAIT):
        async for one in watch:
            if wanted(one):
                return one
    raise AssertionError("the stream ended")


async def test_what_is_told(world: Any, make: Any, feed: ChangeFeed) -> None:
    watch = feed.watch()
    assert await anext(watch) == Changes(), "it begins with a look"
    await world.executor()
    await until(watch, lambda one: "cluster" in one.kinds)
    await world.apply(make.job())
    [run] = await world.start()
    told = await until(watch, lambda one: "runs" in one.kinds)
    assert run in told.runs
    await world.turn("assign")
    assert run in (await until(watch, lambda one: "runs" in one.kinds)).runs
    await world.sql(
        "INSERT INTO scheduler.admin_action_log (actor, action, target, reason) VALUES ('user a', 'x', 'job y', '')"
    )
    await until(watch, lambda one: "settings" in one.kinds)
    await watch.aclose()  # type: ignore[attr-defined]


async def test_two_watchers_share_the_looks_and_none_costs_nothing(world: Any, feed: ChangeFeed) -> None:
    first, second = feed.watch(), feed.watch()
    await anext(first)
    await anext(second)
    await first.aclose()  # type: ignore[attr-defined]
    await second.aclose()  # type: ignore[attr-defined]
    await feed.idle()
    before = looks()
    again = feed.watch()
    await anext(again)
    assert looks() > before
    await again.aclose()  # type: ignore[attr-defined]


def looks() -> float:
    return metrics.REGISTRY.get_sample_value("toban_change_feed_looks_total") or 0.0


def look(runs: dict[int, Any], **given: Any) -> Look:
    return Look(**{"cluster": 1, "settings": 1, **given}, runs=runs)


def test_what_differs() -> None:
    assert not changes(look({1: "a", 2: "b"}), look({2: "b"})), "an event that is older than the window is no change"
    assert changes(look({1: "a"}), look({1: "b", 3: "a"})) == Changes(kinds=frozenset({"runs"}), runs=frozenset({1, 3}))
    assert changes(look({}), look({}, cluster=2, settings=2)).kinds == {"cluster", "settings"}
    many = changes(look({}), look(dict.fromkeys(range(501), "a")))
    assert many == Changes(kinds=frozenset({"runs"})), "too many to name"
    assert many.plus(Changes(kinds=frozenset({"runs"}), runs=frozenset({7}))).runs == frozenset()
    assert changes(look({}), Look(cluster=1, settings=1, runs={}, more=True)).kinds == {"runs"} < ALL.kinds
