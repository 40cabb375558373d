"""Signals are kept, counted, and waited for with a bound."""

import asyncio

import pytest

from toban_testing.signals import Signals, SignalTimeout


async def test_early_and_late_signals_are_both_seen() -> None:
    signals = Signals()
    signals.emit("tick", 1)
    asyncio.get_running_loop().call_soon(signals.emit, "tick", 2)
    assert await signals.wait("tick", count=2) == [1, 2]


async def test_a_missing_signal_names_what_came_instead() -> None:
    signals = Signals()
    signals.emit("other")
    with pytest.raises(SignalTimeout, match=r"'tick' was emitted less than 1 times in 0.01 s; seen: \{'other': 1\}"):
        await signals.wait("tick", timeout=0.01)
