"""Bounded waiting in synchronous code."""

import threading
from collections.abc import Callable

from toban_runtime.clock import SystemClock

POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], bool], seconds: float, poll_seconds: float = POLL_SECONDS) -> bool:
    """Polls `condition` until it is true; False when `seconds` have passed without it."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        if clock.monotonic() >= deadline:
            return False
        pause.wait(poll_seconds)
    return True
