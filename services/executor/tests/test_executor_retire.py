"""The end of an incarnation, step by step: how long it waits, what its last word carries, and what proves that nothing is left."""

import asyncio
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.adapters.guard_client import GuardClient
from toban_executor.loops import shutdown
from toban_executor.loops.heartbeat import Heartbeat, Surroundings
from toban_executor.loops.shutdown import LINGER_SECONDS, TELL_SECONDS, Retirement
from toban_executor.ports import Beat
from toban_fencing.order_book import OrderBook
from toban_runtime.clock import SystemClock
from toban_testing.clock import FakeClock


def attempts() -> Any:
    """An executor that runs nothing."""
    idle = asyncio.Event()
    idle.set()
    book = OrderBook(incarnation="i", slots=1, unfit=lambda _order: None)
    return SimpleNamespace(book=book, idle=idle, progress=SimpleNamespace(unheard=lambda _keys: {}))


async def test_the_last_word_carries_the_answers_to_relayed_orders() -> None:
    said: list[Beat] = []

    async def heartbeat(beat: Beat) -> None:
        said.append(beat)

    gateway: Any = SimpleNamespace(heartbeat=heartbeat)
    journal: Any = None
    beats = Heartbeat(gateway=gateway, attempts=attempts(), journal=journal, clock=FakeClock(), around=Surroundings())
    beats._outcomes.append((7, "DRAINING"))
    await beats.farewell()
    [last] = said
    assert last.stopped and list(last.outcomes) == [(7, "DRAINING")]


@pytest.mark.parametrize(
    ("timeout", "told", "seconds"),
    [(0.0, False, 0.0), (0.5, False, 0.5), (60.0, False, TELL_SECONDS), (60.0, True, LINGER_SECONDS)],
)
async def test_a_drain_waits_for_a_coordinator_no_longer_than_it_may(
    timeout: float, told: bool, seconds: float
) -> None:
    clock = FakeClock()
    none: Any = None
    retirement = Retirement(attempts=attempts(), reporter=none, collector=none, journal=none, clock=clock)
    began = clock.boottime()
    drain = asyncio.create_task(retirement.drain(timeout, lambda: "", told=lambda: told))
    while not drain.done():
        await clock.advance(0.02)
    assert clock.boottime() - began == pytest.approx(seconds, abs=0.05)


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_disk_that_refuses_or_hangs_does_not_stop_the_stop(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "HAND_IN_SECONDS", 0.05)

    async def refuse() -> int:
        if hangs:
            await asyncio.Event().wait()
        raise TobanError(ErrorCode.UNAVAILABLE, "no space left")

    released: list[bool] = []
    collector: Any = SimpleNamespace(pending=False, release=lambda: released.append(True))
    reporter: Any = SimpleNamespace(pending=0)
    journal: Any = SimpleNamespace(log_bytes=refuse)
    retirement = Retirement(
        attempts=attempts(), reporter=reporter, collector=collector, journal=journal, clock=FakeClock()
    )
    await asyncio.wait_for(retirement.hand_in(to_others=True), 5.0)
    assert released == [True]


def process(program: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([program])


@pytest.mark.parametrize(("program", "proven"), [("/bin/true", True), ("/bin/false", False)])
async def test_only_guards_that_ended_in_order_prove_that_nothing_is_left(program: str, proven: bool) -> None:
    guards: Any = SimpleNamespace(slots=[], close=lambda: None, supervisor=process(program))
    assert await GuardClient(guards=guards, clock=SystemClock()).close(timeout=5.0) is proven
