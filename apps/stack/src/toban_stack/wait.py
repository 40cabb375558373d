"""Bounded waiting in synchronous code."""

import threading
from collections.abc import Callable
from typing import TypeVar

from toban_runtime.clock import SystemClock

POLL_SECONDS = 0.02
T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float, poll_seconds: float = POLL_SECONDS) -> T:
    """Polls `condition` until it is true; returns its last value, a false one when `seconds` have passed."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    pause = threading.Event()
    while not (value := condition()) and clock.monotonic() < deadline:
        pause.wait(poll_seconds)
    return value
