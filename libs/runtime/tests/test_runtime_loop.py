"""Loops: woken by signal and tick, never ended by an error."""

import asyncio
from collections.abc import Callable

import pytest

from toban_observability import metrics
from toban_runtime.loop import Loop, TurnResult, WakeRegistry
from toban_testing.clock import FakeClock
from toban_testing.signals import Signals


class Bench:
    """A loop under a fake clock, whose turns are signals."""

    def __init__(self, *, tick: float | Callable[[], float] = 1.0) -> None:
        self.clock = FakeClock()
        self.signals = Signals()
        self.stop = asyncio.Event()
        self.fail: Exception | None = None
        self.loop = Loop("bench", self.once, tick, self.clock, on_turn=self.turned)
        self.task = asyncio.ensure_future(self.loop.run(self.stop))

    async def once(self) -> int:
        if self.fail:
            raise self.fail
        return 42

    def turned(self, turn: TurnResult) -> None:
        self.signals.emit("turn", turn)

    async def turns(self, count: int) -> list[TurnResult]:
        return await self.signals.wait("turn", count=count)

    async def close(self) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, 60)


async def test_it_turns_at_once_and_then_at_each_tick() -> None:
    bench = Bench()
    first = (await bench.turns(1))[0]
    assert (first.loop, first.number, first.error, first.result) == ("bench", 1, None, 42)
    await bench.clock.advance(0.9)
    assert bench.loop.turns == 1
    await bench.clock.advance(0.2)
    await bench.turns(2)
    await bench.close()


async def test_loops_of_one_clock_tick_at_common_instants() -> None:
    clock, stop = FakeClock(), asyncio.Event()
    ticks: dict[str, list[float]] = {"slow": [], "quick": []}

    async def loop(name: str, tick: float) -> None:
        async def note() -> None:
            ticks[name].append(round(clock.monotonic(), 3))

        await Loop(name, note, tick, clock).run(stop)

    tasks = [asyncio.ensure_future(loop("slow", 1.0))]
    await clock.advance(0.3)
    tasks.append(asyncio.ensure_future(loop("quick", 0.5)))
    await clock.advance(1.4)
    assert ticks == {"slow": [0.0, 1.0], "quick": [0.3, 0.5, 1.0, 1.5]}
    stop.set()
    await asyncio.gather(*tasks)


async def test_a_tick_that_changes_counts_from_the_next_wake_on() -> None:
    tick = 60.0
    bench = Bench(tick=lambda: tick)
    await bench.turns(1)
    tick = 0.5
    assert bench.loop.tick_seconds == 0.5
    bench.loop.wake()
    await bench.turns(2)
    await bench.clock.advance(0.6)
    await bench.turns(3)
    await bench.close()


async def test_wakes_make_one_turn_without_time_passing() -> None:
    bench = Bench()
    await bench.turns(1)
    for _ in range(5):
        bench.loop.wake()
    await bench.turns(2)
    await bench.clock.advance(0.5)
    assert bench.loop.turns == 2
    await bench.close()


async def test_a_wake_during_a_turn_makes_another() -> None:
    entered, release, turns = asyncio.Event(), asyncio.Event(), 0
    signals, stop = Signals(), asyncio.Event()

    async def once() -> None:
        nonlocal turns
        turns += 1
        entered.set()
        await release.wait()

    loop = Loop("busy", once, 1.0, FakeClock(), on_turn=lambda turn: signals.emit("turn", turn))
    task = asyncio.ensure_future(loop.run(stop))
    await entered.wait()
    loop.wake()
    release.set()
    await signals.wait("turn", count=2)
    stop.set()
    await asyncio.wait_for(task, 60)
    assert turns == 2


@pytest.mark.seed(200, 218, 221)
async def test_an_error_never_ends_it_and_is_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench = Bench()
    await bench.turns(1)
    bench.fail = RuntimeError("no database")
    bench.loop.wake()
    await bench.turns(2)
    for _ in range(40):
        await bench.clock.advance(0.1)
    failed = [turn for turn in bench.signals.values("turn") if turn.error]
    assert len(failed) >= 6
    assert caplog.text.count("loop turn failed") == 1
    assert "'attempt': 1" in caplog.text and "'next_try_seconds': 0.0" in caplog.text
    await bench.clock.advance(3)
    assert caplog.text.count("loop turn failed") == 2
    bench.fail = None
    await bench.clock.advance(2)
    assert bench.signals.values("turn")[-1].error is None
    assert "loop recovered" in caplog.text
    await bench.close()


async def test_wakes_do_not_make_a_failing_loop_spin() -> None:
    bench = Bench()
    bench.fail = RuntimeError("broken")
    await bench.turns(1)
    for _ in range(100):
        bench.loop.wake()
        await asyncio.sleep(0)
    assert bench.loop.turns == 1
    await bench.close()


@pytest.mark.seed(182)
async def test_stop_lets_the_turn_finish() -> None:
    entered, release, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def once() -> None:
        entered.set()
        await release.wait()
        finished.set()

    stop = asyncio.Event()
    task = asyncio.ensure_future(Loop("slow", once, 1.0, FakeClock()).run(stop))
    await entered.wait()
    stop.set()
    release.set()
    await asyncio.wait_for(task, 60)
    assert finished.is_set()


@pytest.mark.seed(221)
async def test_turns_are_counted() -> None:
    bench = Bench()
    await bench.turns(1)
    await bench.close()
    assert 'toban_loop_turns_total{loop="bench",result="ok"}' in metrics.exposition().decode()


def test_the_registry_wakes_by_name_and_the_latest_registration_counts() -> None:
    woken: list[str] = []
    wakes = WakeRegistry()
    wakes.register("fire", lambda: woken.append("old fire"))
    wakes.register("assign", lambda: woken.append("assign"))
    wakes.register("fire", lambda: woken.append("fire"))
    wakes.wake("fire")
    wakes.wake("unknown")
    assert woken == ["fire"]
    wakes.wake("")
    assert sorted(woken) == ["assign", "fire", "fire"]


def test_the_registry_forgets_what_is_unregistered_and_keeps_its_successor() -> None:
    woken: list[str] = []

    def old() -> None:
        woken.append("old")

    def new() -> None:
        woken.append("new")

    wakes = WakeRegistry()
    wakes.register("fire", old)
    wakes.unregister("fire", old)
    wakes.wake("")
    assert woken == []
    wakes.register("fire", old)
    wakes.register("fire", new)
    wakes.unregister("fire", old)
    wakes.unregister("unknown", old)
    wakes.wake("fire")
    assert woken == ["new"]
