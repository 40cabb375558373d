"""Bounds a try as a whole: a target that sends its response byte by byte is never silent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Connection(Protocol):
    """What is ended."""

    def abort(self) -> None:
        """Ends it from another thread."""

    def close(self) -> None:
        """Closes it."""


@contextmanager
def time_bound(connection: Connection, seconds: float) -> Iterator[Callable[[], bool]]:
    """Aborts the connection when its time is over, and closes it at the end; what it gives says whether the time was over."""
    over = threading.Event()

    def end() -> None:
        over.set()
        connection.abort()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield over.is_set
    finally:
        timer.cancel()
        connection.close()
