"""The end of an incarnation, step by step, and how long each step waits."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.app import shutdown
from toban_executor.app.lease import ExecutorLease
from toban_executor.app.shutdown import DRAIN_NOTICE_SECONDS, LINGER_SECONDS, Shutdown
from toban_fencing.order_book import OrderBook
from toban_testing.clock import FakeClock


def attempts() -> Any:
    """An executor that runs nothing."""
    idle = asyncio.Event()
    idle.set()
    book = OrderBook(incarnation="i", slots=1, unfit=lambda _order: None)
    return SimpleNamespace(
        book=book,
        idle=idle,
        lease=ExecutorLease(clock=FakeClock(), tries=lambda: (3, 0.3)),
        reports_pending=0,
        waiting=SimpleNamespace(return_all=lambda _reason: None),
    )


@pytest.mark.parametrize(
    ("timeout", "acknowledged", "seconds"),
    [(0.0, False, 0.0), (0.5, False, 0.5), (60.0, False, DRAIN_NOTICE_SECONDS), (60.0, True, LINGER_SECONDS)],
)
async def test_a_drain_waits_for_a_coordinator_no_longer_than_it_may(
    timeout: float, acknowledged: bool, seconds: float
) -> None:
    clock = FakeClock()
    none: Any = None
    stopping = Shutdown(attempts=attempts(), collector=none, journal=none, clock=clock)
    began = clock.boottime()
    drain = asyncio.create_task(stopping.drain(timeout, acknowledged=lambda: acknowledged))
    while not drain.done():
        await clock.advance(0.02)
    assert clock.boottime() - began == pytest.approx(seconds, abs=0.05)


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_disk_that_refuses_or_hangs_does_not_stop_the_stop(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "FLUSH_SECONDS", 0.05)

    async def refuse() -> int:
        if hangs:
            await asyncio.Event().wait()
        raise TobanError(ErrorCode.UNAVAILABLE, "no space left")

    released: list[bool] = []
    collector: Any = SimpleNamespace(pending=False, release_outcomes=lambda: released.append(True))
    journal: Any = SimpleNamespace(log_bytes=refuse)
    stopping = Shutdown(attempts=attempts(), collector=collector, journal=journal, clock=FakeClock())
    await asyncio.wait_for(stopping.flush(deliver=True), 60)
    assert released == [True]
