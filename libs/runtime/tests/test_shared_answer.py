"""An answer that many callers share."""

from __future__ import annotations

import asyncio

import pytest

from toban_runtime.shared_answer import SharedAnswer
from toban_testing.clock import FakeClock
from toban_testing.waiting import until


class Source:
    """Counts its answers; each waits for `open`."""

    def __init__(self) -> None:
        self.made = 0
        self.asked, self.open = asyncio.Event(), asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None

    async def __call__(self) -> int:
        self.made += 1
        self.asked.set()
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return self.made


async def test_it_is_kept_for_its_time() -> None:
    source, clock = Source(), FakeClock()
    shared = SharedAnswer(source, clock, keep=lambda _: 5.0)
    assert [await shared.get() for _ in range(3)] == [1, 1, 1]
    await clock.advance(5.0)
    assert await shared.get() == 2


async def test_the_time_may_depend_on_how_long_it_took() -> None:
    source, clock = Source(), FakeClock()
    shared = SharedAnswer(source, clock, keep=lambda took: 10 * took)
    source.open.clear()
    first = asyncio.ensure_future(shared.get())
    await source.asked.wait()
    await clock.advance(2.0)
    source.open.set()
    assert await first == 1
    await clock.advance(17.0)
    assert await shared.get() == 1
    await clock.advance(1.0)
    assert await shared.get() == 2


async def test_callers_share_it_also_when_the_first_one_has_left() -> None:
    source = Source()
    shared = SharedAnswer(source, FakeClock(), keep=lambda _: 5.0)
    source.open.clear()
    first, second = (asyncio.ensure_future(shared.get()) for _ in range(2))
    await source.asked.wait()
    first.cancel()
    source.open.set()
    assert await second == 1 and source.made == 1


async def test_an_error_is_for_who_waits_and_is_not_kept() -> None:
    source = Source()
    shared = SharedAnswer(source, FakeClock(), keep=lambda _: 5.0)
    source.failure = RuntimeError("no database")
    with pytest.raises(RuntimeError, match="no database"):
        await shared.get()
    source.failure = None
    assert await shared.get() == 2


async def test_the_old_answer_serves_while_the_next_one_is_made_but_not_for_ever() -> None:
    source, clock = Source(), FakeClock()
    shared = SharedAnswer(source, clock, keep=lambda _: 5.0, serve_old=True)
    assert await shared.get() == 1
    await clock.advance(5.0)
    assert await shared.get() == 1
    await until(lambda: source.made == 2)
    assert await shared.get() == 2
    await clock.advance(10.0)
    assert await shared.get() == 3
